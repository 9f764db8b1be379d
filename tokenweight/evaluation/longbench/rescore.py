"""Score a directory of stored predictions again, without a model, beside what was published."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from jinja2 import Environment

from tokenweight.errors import UserError
from tokenweight.evaluation.data import check_folder, rows
from tokenweight.evaluation.longbench.metrics import TASKS, FirstLine, score_longbench, unscorable


class TaskScore(NamedTuple):
    """Mean score of one task in percent, and over how many predictions."""

    score: float
    n: int


def rescore(directory: Path, first_line: FirstLine = "lceg") -> dict[str, TaskScore]:
    """Scores of every English task whose ``<task>.jsonl`` is in `directory`, in the tasks' official order.

    Lines hold pred, answers, all_classes as LongBench's pred.py writes them. Repeated lines count as often as they are
    there. Missing tasks are left out: the caller must not average over fewer than it expects. UserError: no such
    directory, no task in it, or a line that cannot be scored (named).
    """
    check_folder(directory, "<task>.jsonl files")
    files = [path for name in TASKS if (path := directory / f"{name}.jsonl").exists()]
    if not files:
        raise UserError(f"{directory}: holds no <task>.jsonl of an English LongBench task; give a predictions folder")
    predictions = {path.stem: _predictions(path) for path in files}  # a bad line is reported before any is scored
    return {
        name: TaskScore(100 * fmean(score_longbench(name, *one, first_line)[1] for one in given), len(given))
        for name, given in predictions.items()
    }


def _predictions(path: Path) -> list[tuple[str, list[str], list[str] | None]]:
    found = []
    for number, row in rows(path, "pred", "answers"):
        if problem := unscorable(path.stem, row) if isinstance(row["pred"], str) else "pred is no text":
            raise UserError(f"{path} line {number}: {problem}; expected lines as LongBench's pred.py writes them")
        found.append((row["pred"], row["answers"], row.get("all_classes")))
    if not found:
        raise UserError(f"{path}: is empty; remove it or give its predictions")
    return found


def categories(scores: dict[str, TaskScore]) -> dict[str, float]:
    """Plain mean of each category whose tasks are all there, in official order."""
    found = {}
    for category in dict.fromkeys(task.category for task in TASKS.values()):
        names = [task.name for task in TASKS.values() if task.category == category]
        if scores.keys() >= set(names):
            found[category] = fmean(scores[name].score for name in names)
    return found


def mean(scores: dict[str, TaskScore]) -> float | None:
    """Plain mean over the 16 tasks; None where one is missing."""
    return fmean(scores[name].score for name in TASKS) if scores.keys() >= TASKS.keys() else None


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
    known, scores = published(directory), rescore(directory, first_line)
    tasks: dict[str, dict[str, Any]] = {}
    for name, found in scores.items():
        tasks[name] = {"category": TASKS[name].category, "n": found.n, "score": found.score}
        if name in known:
            tasks[name] |= {"published": known[name], "difference": round(round(found.score, 2) - known[name], 2)}
    return {
        "first_line": first_line,
        "tasks": tasks,
        "categories": categories(scores),
        "mean": mean(scores),
        "missing": [name for name in TASKS if name not in scores],
        "not_scored": sorted(path.name for path in directory.glob("*.jsonl") if path.stem not in TASKS),
    }


def table(content: dict[str, Any]) -> str:
    template = (Path(__file__).parent / "rescore.jinja").read_text(encoding="utf-8")
    text = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).from_string(template)
    compared = [row for row in content["tasks"].values() if "published" in row]
    differing = sum(row["difference"] != 0 for row in compared)
    zero = [name for name, row in content["tasks"].items() if row["score"] == 0]
    return text.render(content, compared=len(compared), differing=differing, zero=zero).rstrip()
