"""Score stored BIG-Bench-Hard outputs again: lm-eval's sample logs, or this project's per-sample rows."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.bbh import BBH_TASKS, strict_answer, tolerant_score
from tokenweight.evaluation.jsonl import rows
from tokenweight.evaluation.rows import ROWS_NAME, read_rows

_NAMES = "|".join(BBH_TASKS)
# samples_<task>_<date>.jsonl, as lm-eval names them: bbh_cot_fewshot_navigate, leaderboard_bbh_navigate and so on.
_LOG = re.compile(r"samples_(?:\w*?bbh\w*?_)?(?P<task>" + _NAMES + r")(?:_\d{4}-[^/]*)?\.jsonl")
_ARTIFACT = re.compile(r"(?P<label>.+)--bbh-(?P<task>" + _NAMES + r")-[0-9a-f]+")  # a store's evaluate/<name>


@dataclass(frozen=True)
class BbhScore:
    """Exact match of one task in percent, by lm-eval's strict pattern and by the tolerant one, and of how many."""

    strict: float
    tolerant: float
    n: int


def rescore(directory: Path) -> dict[str, dict[str, BbhScore]]:
    """Scores of every BBH task with stored outputs anywhere below `directory`: by run, then in the tasks' order.

    A run is a directory of lm-eval logs, or in a store of this project the checkpoint that rows are of. A log with
    several filters holds a sample once for each: it counts once.

    Raises:
        UserError: no such directory, no output of a task, two files of one run and task, or a line that cannot be
            scored (named).
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory; give the folder that holds samples_*.jsonl or {ROWS_NAME}")
    found: dict[str, dict[str, Path]] = {}
    for path in sorted([*directory.rglob("samples_*.jsonl"), *directory.rglob(ROWS_NAME)]):
        place = _place(path, directory)
        if place is None:
            continue
        run, task = place
        other = found.setdefault(run, {}).setdefault(task, path)
        if other != path:
            raise UserError(f"{run}: {other} and {path} both hold {task}; leave the outputs of one evaluation there")
    if not found:
        raise UserError(f"{directory}: holds no samples_*.jsonl or {ROWS_NAME} of a BBH task; give a folder of outputs")
    return {
        run: {task: _score(files[task]) for task in BBH_TASKS if task in files} for run, files in sorted(found.items())
    }


def micro_average(scores: dict[str, BbhScore]) -> tuple[float, float]:
    """Strict and tolerant score over all samples: a task weighs as much as it has samples."""
    total = sum(score.n for score in scores.values())
    return (
        sum(score.strict * score.n for score in scores.values()) / total,
        sum(score.tolerant * score.n for score in scores.values()) / total,
    )


def summary(runs: dict[str, dict[str, BbhScore]]) -> dict[str, Any]:
    """What `--json` prints: each run's tasks, micro-average, and the tasks that are missing."""
    content = {}
    for run, scores in runs.items():
        strict, tolerant = micro_average(scores)
        content[run] = {
            "tasks": {task: asdict(score) for task, score in scores.items()},
            "micro_average": {"strict": strict, "tolerant": tolerant, "n": sum(score.n for score in scores.values())},
            "missing": [task for task in BBH_TASKS if task not in scores],
        }
    return content


def table(content: dict[str, Any]) -> str:
    """The same as text, one table a run."""
    parts = []
    for run, found in content.items():
        lines = [run, f"{'task':40}{'n':>6}{'strict':>9}{'tolerant':>10}"]
        average = f"micro-average, {len(found['tasks'])} of {len(BBH_TASKS)} tasks"
        lines_of = [*found["tasks"].items(), (average, found["micro_average"])]
        lines += [f"{name:40}{row['n']:>6}{row['strict']:>9.2f}{row['tolerant']:>10.2f}" for name, row in lines_of]
        if found["missing"]:
            lines.append(f"missing: {', '.join(found['missing'])}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _place(path: Path, directory: Path) -> tuple[str, str] | None:
    """Run and task of a file, by its name or its directory's; None: of something else than BBH."""
    if path.name == ROWS_NAME:
        match = _ARTIFACT.fullmatch(path.parent.name)
        return (match.group("label"), match.group("task")) if match else None
    match = _LOG.fullmatch(path.name)
    run = path.parent.relative_to(directory).as_posix()
    return (directory.resolve().name if run == "." else run, match.group("task")) if match else None


def _score(path: Path) -> BbhScore:
    outputs = _stored_rows(path) if path.name == ROWS_NAME else _logged(path)
    if not outputs:
        raise UserError(f"{path}: holds no sample; remove it or give its outputs")
    strict = fmean(float(strict_answer(output) == target) for output, target in outputs)
    tolerant = fmean(tolerant_score(output, target) for output, target in outputs)
    return BbhScore(100 * strict, 100 * tolerant, len(outputs))


def _stored_rows(path: Path) -> list[tuple[str, str]]:
    try:
        return [(row.output, json.loads(row.reference)[0]) for row in read_rows(path.parent)]
    except StageError as error:
        raise UserError(str(error)) from error


def _logged(path: Path) -> list[tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    filters: dict[int, set[str]] = {}
    for number, row in rows(path, "doc_id", "target", "resps"):
        where, sample = f"{path} line {number}", row["doc_id"]
        try:
            output = row["resps"][0][0]
        except (IndexError, KeyError, TypeError):
            output = None
        if not isinstance(output, str):
            raise UserError(f"{where}: resps holds no text; expected a log of generated answers")
        name = str(row.get("filter"))
        if name in filters.setdefault(sample, set()):
            raise UserError(f"{where}: sample {sample} stands there twice; was the log appended to? give one run's")
        filters[sample].add(name)
        found[sample] = (output, str(row["target"]))
    return list(found.values())
