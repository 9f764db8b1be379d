"""Data sets of the hub for tasks of lm-eval, two samples of our own each: LongBench v2 (20 subsets), BABILong (20 questions)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from smoke_eval.world import World

LONGBENCH2 = (
    "academic_multi", "academic_single", "agent_history_qa", "code_repo_qa", "detective", "dialogue_history_qa",
    "event_ordering", "financial_multi", "financial_single", "government_multi", "government_single", "graph_reasoning",
    "legal_multi", "legal_single", "literary", "manyshot_learning", "multinews", "new_language_translation", "table_qa",
    "user_guide_qa",
)  # fmt: skip
BABILONG = tuple(f"qa{number}" for number in range(1, 21))
YES_NO = ("qa6", "qa9", "qa10", "qa17", "qa18")
SAMPLES, SENTENCES = 2, 12


def write(out: Path) -> None:
    """Write the repositories, JSON Lines with the subsets and splits that their cards name."""
    rng = Random("hub")
    subsets = {subset: {"train": [_choice(World(rng)) for _ in range(SAMPLES)]} for subset in LONGBENCH2}
    _repository(out / "recursal/longbench-v2", subsets)
    questions = {split: [_question(World(rng), split in YES_NO) for _ in range(SAMPLES)] for split in BABILONG}
    _repository(out / "RMT-team/babilong-1k-samples", {"0k": questions})


def _repository(place: Path, subsets: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    lines = ["---", "configs:"]
    for subset, splits in subsets.items():
        lines += [f"- config_name: {subset}", "  data_files:"]
        for split, rows in splits.items():
            file = place / subset / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            lines += [f"  - split: {split}", f"    path: {subset}/{split}.jsonl"]
    (place / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")


def _text(world: World) -> tuple[str, Any]:
    """Filler with one person's facts in it, and the person."""
    person = world.rng.choice(world.persons)
    sentences = [world.filler() for _ in range(SENTENCES)]
    for fact in person.facts:
        sentences.insert(world.rng.randrange(len(sentences)), fact)
    return " ".join(sentences), person


def _choice(world: World) -> dict[str, Any]:
    text, person = _text(world)
    others = sorted({one.home for one in world.persons} - {person.home})
    choices = [person.home, *world.rng.sample(others, 3)]
    world.rng.shuffle(choices)
    answer = "ABCD"[choices.index(person.home)]
    return {"context": text, "question": f"Where does {person.name} live?", "choices": choices, "answer": answer}


def _question(world: World, yes_no: bool) -> dict[str, str]:
    text, person = _text(world)
    if not yes_no:
        return {"input": text, "question": f"Where does {person.name} live?", "target": person.home}
    asked = world.rng.choice([person.trade, world.rng.choice(world.persons).trade])
    target = "yes" if asked == person.trade else "no"
    return {"input": text, "question": f"Does {person.name} work as the {asked}?", "target": target}
