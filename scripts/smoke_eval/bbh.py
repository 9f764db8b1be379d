"""BIG-Bench-Hard's 27 tasks: four items each in the official JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from smoke_eval import bbh_language as language
from smoke_eval import bbh_logic as logic

EXAMPLES = 4
TASKS: dict[str, Callable[[Random], logic.Item]] = {
    "boolean_expressions": logic.boolean_expressions,
    "causal_judgement": language.causal_judgement,
    "date_understanding": language.date_understanding,
    "disambiguation_qa": language.disambiguation_qa,
    "dyck_languages": logic.dyck_languages,
    "formal_fallacies": logic.formal_fallacies,
    "geometric_shapes": language.geometric_shapes,
    "hyperbaton": language.hyperbaton,
    "logical_deduction_five_objects": partial(logic.logical_deduction, count=5),
    "logical_deduction_seven_objects": partial(logic.logical_deduction, count=7),
    "logical_deduction_three_objects": partial(logic.logical_deduction, count=3),
    "movie_recommendation": language.movie_recommendation,
    "multistep_arithmetic_two": logic.multistep_arithmetic_two,
    "navigate": logic.navigate,
    "object_counting": logic.object_counting,
    "penguins_in_a_table": language.penguins_in_a_table,
    "reasoning_about_colored_objects": language.reasoning_about_colored_objects,
    "ruin_names": language.ruin_names,
    "salient_translation_error_detection": language.salient_translation_error_detection,
    "snarks": language.snarks,
    "sports_understanding": language.sports_understanding,
    "temporal_sequences": logic.temporal_sequences,
    "tracking_shuffled_objects_five_objects": partial(logic.tracking_shuffled_objects, count=5),
    "tracking_shuffled_objects_seven_objects": partial(logic.tracking_shuffled_objects, count=7),
    "tracking_shuffled_objects_three_objects": partial(logic.tracking_shuffled_objects, count=3),
    "web_of_lies": logic.web_of_lies,
    "word_sorting": logic.word_sorting,
}


def write(out: Path) -> None:
    """Write <task>.json for every task."""
    out.mkdir(parents=True, exist_ok=True)
    for task, make in TASKS.items():
        rng = Random(f"smoke-eval/bbh/{task}")
        examples = [{"input": text, "target": target} for text, target in (make(rng) for _ in range(EXAMPLES))]
        (out / f"{task}.json").write_text(json.dumps({"examples": examples}, indent=1) + "\n", encoding="utf-8")
