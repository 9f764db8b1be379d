"""Scores of a predictions folder for a person or a program: tasks, categories, mean, and what was published."""

from __future__ import annotations

from typing import Any

from tokenweight.evaluation.longbench.rescore import TaskScore, categories, mean
from tokenweight.evaluation.longbench.tasks import TASKS, FirstLine


def summary(
    scores: dict[str, TaskScore], known: dict[str, float], first_line: FirstLine, other_files: list[str]
) -> dict[str, Any]:
    """What `--json` prints. `known`: published scores by task; `difference` is to two decimals, as those are."""
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
        "not_scored": other_files,
    }


def table(content: dict[str, Any]) -> str:
    """The same as text."""
    tasks = content["tasks"]
    compared = {name: row["difference"] for name, row in tasks.items() if "published" in row}
    lines = [
        f"{'task':22}{'category':22}{'n':>5}{'score':>8}" + (f"{'published':>11}{'difference':>12}" if compared else "")
    ]
    for name, row in tasks.items():
        beside = f"{row['published']:>11.2f}{row['difference']:>+12.2f}" if name in compared else ""
        lines.append(f"{name:22}{row['category']:22}{row['n']:>5}{row['score']:>8.2f}{beside}")
    lines += ["", *(f"{name:49}{score:>8.2f}" for name, score in content["categories"].items())]
    if content["mean"] is not None:
        lines.append(f"{'mean of the 16 tasks':49}{content['mean']:>8.2f}")
    else:
        lines.append(f"no mean: {', '.join(content['missing'])} missing")
    if content["not_scored"]:
        lines.append(f"no English task, not scored: {', '.join(content['not_scored'])}")
    lines.append(f"first-line rule: {content['first_line']}")
    if zero := [name for name, row in tasks.items() if row["score"] == 0]:
        lines.append(f"every prediction scores 0: {', '.join(zero)}; look at a few, or try the other first-line rule")
    if compared:
        differing = [name for name, difference in compared.items() if difference]
        equal = len(compared) - len(differing)
        lines.append(f"{equal} of {len(compared)} equal the published scores to two decimals")
        if differing and content["first_line"] == "lceg":
            lines.append("(LongBench's own scores are made with --first-line thudm)")
    return "\n".join(lines)
