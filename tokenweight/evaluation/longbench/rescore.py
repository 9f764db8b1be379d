"""Score a directory of stored predictions again, without a model, beside what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.data import check_folder, rows
from tokenweight.evaluation.longbench.metrics import TASKS, FirstLine, score_longbench, unscorable


def rescore(directory: Path, first_line: FirstLine = "lceg") -> dict[str, list[float]]:
    """The score in 0..1 of each prediction of every English task whose ``<task>.jsonl`` is there, in official order.

    Lines hold pred, answers, all_classes as LongBench's pred.py writes them. Repeated lines count as often as they are
    there. UserError: no such directory, no task in it, or a line that cannot be scored (named).
    """
    check_folder(directory, "<task>.jsonl files")
    files = [path for name in TASKS if (path := directory / f"{name}.jsonl").exists()]
    if not files:
        raise UserError(f"{directory}: holds no <task>.jsonl of an English LongBench task; give a predictions folder")
    predictions = {path.stem: list(_predictions(path)) for path in files}  # a bad line is reported before any is scored
    return {name: [score_longbench(name, *one, first_line)[1] for one in given] for name, given in predictions.items()}


def _predictions(path: Path) -> Iterator[tuple[str, list[str], list[str] | None]]:
    number = 0
    for number, row in rows(path, "pred", "answers"):
        if problem := unscorable(path.stem, row) if isinstance(row["pred"], str) else "pred is no text":
            raise UserError(f"{path} line {number}: {problem}; expected lines as LongBench's pred.py writes them")
        yield row["pred"], row["answers"], row.get("all_classes")
    if not number:
        raise UserError(f"{path}: is empty; remove it or give its predictions")


def mean(scores: Mapping[str, float], category: str | None = None) -> float | None:
    """Plain mean over the 16 tasks, or over those of a category; None where one is missing."""
    names = [name for name, task in TASKS.items() if category in (None, task.category)]
    return fmean(scores[name] for name in names) if scores.keys() >= set(names) else None


def categories(scores: Mapping[str, float]) -> dict[str, float]:
    """The mean of each category whose tasks are all there, in official order."""
    every = dict.fromkeys(task.category for task in TASKS.values())
    return {category: found for category in every if (found := mean(scores, category)) is not None}


def published(directory: Path) -> dict[str, float]:
    """Scores of the English tasks in the folder's ``result.json``; empty where there is none.

    UserError: it is not a JSON object of numbers.
    """
    path = directory / "result.json"
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: float(content[name]) for name in TASKS if content.get(name) is not None}
    except (ValueError, TypeError, AttributeError, OSError):
        raise UserError(f"{path}: is no JSON object of scores by task; remove or repair it") from None


def summary(directory: Path, first_line: FirstLine) -> dict[str, Any]:
    """What `--json` prints. `difference` from published scores is to two decimals, as those are."""
    known, found = published(directory), rescore(directory, first_line)
    scores = {name: 100 * fmean(each) for name, each in found.items()}
    tasks: dict[str, dict[str, Any]] = {}
    for name, score in scores.items():
        tasks[name] = {"category": TASKS[name].category, "n": len(found[name]), "score": score}
        if name in known:
            tasks[name] |= {"published": known[name], "difference": round(round(score, 2) - known[name], 2)}
    return {
        "first_line": first_line,
        "tasks": tasks,
        "categories": categories(scores),
        "mean": mean(scores),
        "missing": [name for name in TASKS if name not in scores],
        "not_scored": sorted(path.name for path in directory.glob("*.jsonl") if path.stem not in TASKS),
    }
