"""RULER as a benchmark: units, identity, prompts and scores (Hsieh et al., 2024; Section 4 and Appendix C)."""

import re
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.evaluation.benchmark import Prepared, Unit
from tokenweight.evaluation.ruler.generator import generate
from tokenweight.evaluation.ruler.tasks import TASKS, source_files
from tokenweight.evaluation.samples import Classes, PromptedBenchmark, Scored
from tokenweight.recipes.schema import Evaluation

_CONTROL = re.compile(r"[\x00-\x1f]")


class Ruler(PromptedBenchmark):
    name = "ruler"
    tasks = TASKS
    prefix = ""  # as lm-eval's own RULER
    path_fields = ("haystack", "squad", "hotpotqa")

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        lengths = evaluation.ruler.lengths_tokens
        return [Unit(self.name, task, n) for n in lengths if n <= context_tokens for task in TASKS]

    def n_expected(self, evaluation: Evaluation) -> int | None:
        return evaluation.ruler.samples

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        files = source_files(TASKS[unit.task], evaluation.ruler.model_dump())
        return {f"ruler.{TASKS[unit.task].source}": files} if files else {}

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without other lengths, and the texts and word lists that the task does not read."""
        task = TASKS[unit.task]
        unread = {name: None for name in self.path_fields if name != task.source}
        draws_words = task.family in ("niah", "common_words") and task.key_type == "words"
        profile = evaluation.ruler.profile if draws_words else "paper"
        own = {"lengths_tokens": (unit.length_tokens,), "profile": profile, **unread}
        return {"ruler": evaluation.ruler.model_copy(update=own)}

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        own = super().protocol(unit, evaluation) | {"fewshot": int(unit.task in ("vt", "cwe"))}
        if TASKS[unit.task].source == "haystack" and evaluation.ruler.haystack is not None:
            own["template_version"] += 1  # NLTK cuts its sentences since; in the shipped text it finds the same
        return own

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        """Control characters become line breaks, ends are stripped, as RULER matches a prediction."""
        filtered = _CONTROL.sub("\n", output.strip()).strip()
        metric = string_match_part if TASKS[task].metric == "string_match_part" else string_match_all
        return Scored(filtered, metric(filtered, references))

    def prepare(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int) -> Prepared:
        settings, task, length = evaluation.ruler, TASKS[unit.task], unit.length_tokens or 0
        given = length, settings.samples, settings.seed, tokenizer_dir, settings.model_dump(), settings.profile
        samples = generate(unit.task, *given)
        rows = [
            {
                "doc_id": sample["index"],
                "prompt": sample["input"] + sample["answer_prefix"],
                "references": sample["outputs"],
                "max_new_tokens": task.new_tokens,
                "n_prompt_tokens": sample["length"] - task.new_tokens,
                "answer_prefix": sample["answer_prefix"],
            }
            for sample in samples
        ]
        fill = [sample["length"] / length for sample in samples]
        return rows, {"fill_ratio_mean": round(fmean(fill), 4), "fill_ratio_min": round(min(fill), 4)}


def string_match_all(prediction: str, references: list[str]) -> float:
    """Share of the references that are in the prediction, case ignored."""
    text = prediction.lower()
    return sum(reference.lower() in text for reference in references) / len(references)


def string_match_part(prediction: str, references: list[str]) -> float:
    """1 if any reference is in the prediction, case ignored, else 0."""
    return float(string_match_all(prediction, references) > 0)
