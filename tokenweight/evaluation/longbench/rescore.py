"""Score a directory of stored predictions again, without a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.longbench.score import score_longbench
from tokenweight.evaluation.longbench.tasks import TASKS, FirstLine


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
        UserError: no such directory, no task in it, or a line that lacks a field.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory; give the folder that holds <task>.jsonl files")
    found = {name: directory / f"{name}.jsonl" for name in TASKS if (directory / f"{name}.jsonl").exists()}
    if not found:
        raise UserError(f"{directory}: holds no <task>.jsonl of an English LongBench task; give a predictions folder")
    return {name: _score_file(name, path, first_line) for name, path in found.items()}


def _score_file(task: str, path: Path, first_line: FirstLine) -> TaskScore:
    scores = []
    for number, row in enumerate(_rows(path), start=1):
        try:
            prediction, answers, classes = row["pred"], row["answers"], row.get("all_classes")
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} line {number}: has no field {error}; expected pred, answers, all_classes"
            ) from None
        scores.append(score_longbench(task, prediction, answers, classes, first_line)[1])
    if not scores:
        raise UserError(f"{path}: is empty; remove it or give its predictions")
    return TaskScore(100 * sum(scores) / len(scores), len(scores))


def _rows(path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"{path}: is not JSON Lines ({error}); expected one prediction a line") from None
