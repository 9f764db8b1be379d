"""Guards: results that are more likely a broken protocol than a model are flagged, in the record and in the table.

Everything follows from the rows alone, so that a stored evaluation that is scored again is judged again as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import benchmark_of

MIN_SAMPLES = 8  # fewer say nothing about the shape of a distribution
ECHOED_SHARE = 0.1  # a model may now and then begin its prompt anew; a harness that leaves prompts in does so always
# What is wrong with prompts, whatever the metric: it stays when outputs are scored again.
PROMPT_FLAGS = ("double_bos", "left_truncated", "missing_bos", "prompt_echoed")


def flags(rows: Sequence[Row], unit: Unit) -> list[str]:
    """Names of what looks wrong with a unit's rows, sorted; missing_samples needs the expected count: :func:`summary`."""
    if not rows:
        return ["no_samples"]
    benchmark = benchmark_of(unit)
    signs = {
        "mostly_truncated": fmean(row.truncated for row in rows) > 0.5,
        "missing_bos": any(row.bos_tokens == 0 for row in rows),
        "double_bos": any((row.bos_tokens or 0) > 1 for row in rows),
        "left_truncated": any(row.left_truncated for row in rows),
        "prompt_echoed": fmean(bool(row.echoed) for row in rows) > ECHOED_SHARE,
    }
    if not benchmark.one_pass:  # else there are no answers, and no task to solve by a trick
        signs["all_empty"] = all(not row.output.strip() for row in rows)
        if len(rows) >= MIN_SAMPLES:
            scores, most = [row.score for row in rows], benchmark.implausible_mean(unit.task)
            one_answer = len({row.filtered.strip() for row in rows}) == 1
            signs |= {
                "all_zero": max(scores) == 0,
                "all_equal": max(scores) != 0 and min(scores) == max(scores) < 1,
                "one_answer_to_everything": one_answer and len({row.reference for row in rows}) > 1,
                "implausibly_perfect": most is not None and fmean(scores) > most,
            }
    return sorted(name for name, is_there in signs.items() if is_there)


def summary(
    rows: Sequence[Row], unit: Unit, *, n_expected: int, seconds: float, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What `summary.json` holds: n, n_expected, mean_score, shares, bos, flags, seconds, a benchmark's notes."""
    missing = {"missing_samples"} if len(rows) != n_expected else set()
    bos = sorted({row.bos_tokens for row in rows if row.bos_tokens is not None})  # at the start of the prompts
    how_many = "no BOS" if not bos else bos[0] if len(bos) == 1 else bos
    return {
        "n": len(rows),
        "n_expected": n_expected,
        "mean_score": fmean(row.score for row in rows) if rows else None,
        "share_truncated": fmean(row.truncated for row in rows) if rows else None,
        "share_echoed": fmean(bool(row.echoed) for row in rows) if rows else None,
        "bos": how_many if rows else None,
        "flags": sorted({*flags(rows, unit), *missing}),
        "seconds": round(seconds, 3),
        **(notes or {}),
    }
