"""Guards: results that are more likely a broken protocol than a model are flagged, in the record and in the table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import ONE_PASS

MIN_SAMPLES = 8  # fewer say nothing about the shape of a distribution
# By the beginning of a unit's id. Needles are really solved; questions about real text are not.
IMPLAUSIBLE_MEAN = {"longbench/": 0.95, "mmlu/": 0.97, "bbh/": 0.98, "ruler/qa_": 0.95}
ECHO_CHARACTERS = 40


def flags(rows: Sequence[Row], unit_id: str, prompts: dict[int, str] | None = None) -> list[str]:
    """Names of what looks wrong with a unit's rows, sorted; `prompts` (doc_id -> prompt) enables the echo check.

    missing_samples is not among them: it needs the expected count (see :func:`summary`).
    """
    if not rows:
        return ["no_samples"]
    benchmark = unit_id.split("/")[0]
    found = set()
    if 2 * sum(row.truncated for row in rows) > len(rows):
        found.add("mostly_truncated")
    if benchmark in ONE_PASS:  # no answers, no task to solve by a trick
        return sorted(found)
    if benchmark != "mmlu" and all(not row.output.strip() for row in rows):
        found.add("all_empty")
    if prompts and _echoes(rows, prompts):
        found.add("prompt_echoed")
    if len(rows) >= MIN_SAMPLES:
        found |= _shape_flags(rows, unit_id)
    return sorted(found)


def _shape_flags(rows: Sequence[Row], unit_id: str) -> set[str]:
    found = set()
    scores = [row.score for row in rows]
    if max(scores) == 0:
        found.add("all_zero")
    elif min(scores) == max(scores) < 1:
        found.add("all_equal")
    answers = {row.filtered.strip() for row in rows}
    references = {row.reference for row in rows}
    if len(answers) == 1 and len(references) > 1:
        found.add("one_answer_to_everything")
    if any(unit_id.startswith(start) and fmean(scores) > bound for start, bound in IMPLAUSIBLE_MEAN.items()):
        found.add("implausibly_perfect")
    return found


def _echoes(rows: Sequence[Row], prompts: dict[int, str]) -> bool:
    """Most outputs begin with the beginning of their prompt: the prompt was left in the output."""

    def echoed(row: Row) -> bool:
        head = prompts.get(row.doc_id, "").strip()[:ECHO_CHARACTERS]
        return len(head) == ECHO_CHARACTERS and row.output.strip().startswith(head)

    return 2 * sum(echoed(row) for row in rows) > len(rows)


def summary(
    rows: Sequence[Row],
    unit_id: str,
    *,
    n_expected: int,
    seconds: float,
    prompts: dict[int, str] | None = None,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `summary.json` holds: n, n_expected, mean_score, share_truncated, flags, seconds, a benchmark's notes."""
    found = flags(rows, unit_id, prompts)
    if len(rows) != n_expected:
        found = sorted({*found, "missing_samples"})
    return {
        "n": len(rows),
        "n_expected": n_expected,
        "mean_score": fmean(row.score for row in rows) if rows else None,
        "share_truncated": fmean(row.truncated for row in rows) if rows else None,
        "flags": found,
        "seconds": round(seconds, 3),
        **(notes or {}),
    }
