"""Score a directory of stored predictions again, without a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.jsonl import rows
from tokenweight.evaluation.longbench.score import score_longbench
from tokenweight.evaluation.longbench.tasks import TASKS, FirstLine

PUBLISHED = "result.json"


@dataclass(frozen=True)
class TaskScore:
    """Mean score of one task in percent, and over how many predictions."""

    score: float
    n: int


def rescore(directory: Path, first_line: FirstLine = "lceg") -> dict[str, TaskScore]:
    """Scores of every English task whose ``<task>.jsonl`` is in `directory`, in the tasks' official order.

    Lines hold pred, answers, all_classes as LongBench's pred.py writes them. Repeated lines count as often as they
    are there. Missing tasks are left out: the caller must not average over fewer than it expects.

    Raises:
        UserError: no such directory, no task in it, or a line that cannot be scored (named).
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory; give the folder that holds <task>.jsonl files")
    found = {name: directory / f"{name}.jsonl" for name in TASKS if (directory / f"{name}.jsonl").exists()}
    if not found:
        raise UserError(f"{directory}: holds no <task>.jsonl of an English LongBench task; give a predictions folder")
    predictions = {name: _predictions(name, path) for name, path in found.items()}  # a bad line is told at once
    return {
        name: TaskScore(100 * fmean(score_longbench(name, *one, first_line)[1] for one in given), len(given))
        for name, given in predictions.items()
    }


def categories(scores: dict[str, TaskScore]) -> dict[str, float]:
    """Plain mean of each category whose tasks are all there, in official order."""
    members: dict[str, list[str]] = {}
    for task in TASKS.values():
        members.setdefault(task.category, []).append(task.name)
    return {
        category: fmean(scores[name].score for name in names)
        for category, names in members.items()
        if all(name in scores for name in names)
    }


def mean(scores: dict[str, TaskScore]) -> float | None:
    """Plain mean over the 16 tasks; None where one is missing."""
    return fmean(scores[name].score for name in TASKS) if all(name in scores for name in TASKS) else None


def published(directory: Path) -> dict[str, float]:
    """Scores of the English tasks in the folder's ``result.json``; empty where there is none.

    Raises:
        UserError: it is not a JSON object of numbers.
    """
    path = Path(directory) / PUBLISHED
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: float(content[name]) for name in TASKS if content.get(name) is not None}
    except (ValueError, TypeError, AttributeError, OSError):
        raise UserError(f"{path}: is no JSON object of scores by task; remove or repair it") from None


def other_files(directory: Path) -> list[str]:
    """Files of lines in the folder that belong to no English task: other languages, or a name that is mistyped."""
    return sorted(path.name for path in Path(directory).glob("*.jsonl") if path.stem not in TASKS)


def _predictions(task: str, path: Path) -> list[tuple[str, list[str], list[str] | None]]:
    found = []
    for number, row in rows(path, "pred", "answers"):
        problem = _problem(task, row)
        if problem:
            raise UserError(f"{path} line {number}: {problem}; expected lines as LongBench's pred.py writes them")
        found.append((row["pred"], row["answers"], row.get("all_classes")))
    if not found:
        raise UserError(f"{path}: is empty; remove it or give its predictions")
    return found


def _problem(task: str, row: dict[str, Any]) -> str | None:
    """What keeps a line from being scored."""
    if not isinstance(row["pred"], str):
        return "pred is no text"
    answers, classes = row["answers"], row.get("all_classes")
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        return "answers is no list of texts"
    if TASKS[task].metric == "classification" and not (isinstance(classes, list) and classes):
        return "all_classes is no list of class names"
    if TASKS[task].metric == "retrieval" and not all("Paragraph " in answer for answer in answers):
        return "an answer does not read 'Paragraph N'"
    return None
