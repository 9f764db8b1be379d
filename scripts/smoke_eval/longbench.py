"""The 16 English tasks of LongBench: four samples each in the official JSONL, two of them long."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from smoke_eval import longbench_code, longbench_texts
from smoke_eval.world import World

# Words of context: two below 1024 tokens of the shipped tokenizer with any prompt, two above.
WORDS = (250, 400, 1100, 2200)
LONGEST_WORDS = 4000  # for three tasks the last one exceeds 4096 tokens and is cut
LONGEST = ("narrativeqa", "hotpotqa", "gov_report")

Maker = Callable[[World, int], dict[str, Any]]
MAKERS: dict[str, Maker] = {
    "narrativeqa": longbench_texts.story_question,
    "qasper": longbench_texts.article_question,
    "multifieldqa_en": longbench_texts.text_question,
    "hotpotqa": longbench_texts.passages_question,
    "2wikimqa": longbench_texts.passages_question,
    "musique": longbench_texts.passages_question,
    "gov_report": longbench_texts.report,
    "qmsum": longbench_texts.meeting,
    "multi_news": longbench_texts.news,
    "trec": longbench_texts.question_types,
    "triviaqa": longbench_texts.trivia,
    "samsum": longbench_texts.dialogues,
    "passage_count": longbench_texts.passage_count,
    "passage_retrieval_en": longbench_texts.passage_retrieval,
    "lcc": longbench_code.one_file,
    "repobench-p": longbench_code.repository,
}


def write(out: Path) -> None:
    """Write <task>.jsonl for every task."""
    out.mkdir(parents=True, exist_ok=True)
    for task, make in MAKERS.items():
        lines = []
        for number, words in enumerate(WORDS):
            wanted = LONGEST_WORDS if task in LONGEST and number == len(WORDS) - 1 else words
            world = World(Random(f"smoke-eval/longbench/{task}/{number}"))
            lines.append(json.dumps(_official(task, number, make(world, wanted)), ensure_ascii=False))
        (out / f"{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _official(task: str, number: int, made: dict[str, Any]) -> dict[str, Any]:
    return {
        "input": made.get("input", ""),
        "context": made["context"],
        "answers": made["answers"],
        "length": len(f"{made['context']} {made.get('input', '')}".split()),
        "dataset": task,
        "language": "python" if task in ("lcc", "repobench-p") else "en",
        "all_classes": made.get("all_classes"),
        "_id": sha256(f"{task}/{number}".encode()).hexdigest()[:48],
    }
