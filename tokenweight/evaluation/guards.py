"""Guards: results that are more likely a broken protocol than a model are flagged, in the record and in the table.

Everything follows from the rows alone, so that a stored evaluation that is scored again is judged again as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import benchmark_of

MIN_SAMPLES = 8  # fewer say nothing about the shape of a distribution
ECHOED_SHARE = 0.1  # a model may now and then begin its prompt anew; a harness that leaves prompts in does so always
# What is wrong with prompts, whatever the metric: it stays when outputs are scored again.
PROMPT_FLAGS = ("double_bos", "left_truncated", "missing_bos", "prompt_echoed")
NO_BOS = "no BOS"


def flags(rows: Sequence[Row], unit: Unit) -> list[str]:
    """Names of what looks wrong with a unit's rows, sorted.

    missing_samples is not among them: it needs the expected count (see :func:`summary`).
    """
    if not rows:
        return ["no_samples"]
    benchmark = benchmark_of(unit)
    found = _prompt_flags(rows)
    if benchmark.one_pass:  # no answers, no task to solve by a trick
        return sorted(found)
    if all(not row.output.strip() for row in rows):
        found.add("all_empty")
    if len(rows) >= MIN_SAMPLES:
        found |= _shape_flags(rows, benchmark.implausible_mean(unit.task))
    return sorted(found)


def _prompt_flags(rows: Sequence[Row]) -> set[str]:
    found = set()
    if 2 * sum(row.truncated for row in rows) > len(rows):
        found.add("mostly_truncated")
    if any(row.bos_tokens == 0 for row in rows):
        found.add("missing_bos")
    if any((row.bos_tokens or 0) > 1 for row in rows):
        found.add("double_bos")
    if any(row.left_truncated for row in rows):
        found.add("left_truncated")
    if _share(row.echoed for row in rows) > ECHOED_SHARE:
        found.add("prompt_echoed")
    return found


def _shape_flags(rows: Sequence[Row], implausible_mean: float | None) -> set[str]:
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
    if implausible_mean is not None and fmean(scores) > implausible_mean:
        found.add("implausibly_perfect")
    return found


def bos(rows: Sequence[Row]) -> int | list[int] | str:
    """How many BOS tokens stand at the start of the prompts: one number, all that occur, or "no BOS" to have."""
    counts = sorted({row.bos_tokens for row in rows if row.bos_tokens is not None})
    return NO_BOS if not counts else counts[0] if len(counts) == 1 else counts


def _share(values: Iterable[bool | None]) -> float:
    return fmean(bool(value) for value in values)


def summary(
    rows: Sequence[Row],
    unit: Unit,
    *,
    n_expected: int,
    seconds: float,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `summary.json` holds: n, n_expected, mean_score, shares, bos, flags, seconds, a benchmark's notes."""
    found = flags(rows, unit)
    if len(rows) != n_expected:
        found = sorted({*found, "missing_samples"})
    return {
        "n": len(rows),
        "n_expected": n_expected,
        "mean_score": fmean(row.score for row in rows) if rows else None,
        "share_truncated": _share(row.truncated for row in rows) if rows else None,
        "share_echoed": _share(row.echoed for row in rows) if rows else None,
        "bos": bos(rows) if rows else None,
        "flags": found,
        "seconds": round(seconds, 3),
        **(notes or {}),
    }
