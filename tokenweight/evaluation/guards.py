"""Guards: results that are more likely a broken protocol than a model are flagged, in the record and in the table.

Everything is told from the rows alone, so that a stored evaluation that is scored again is judged again as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import ONE_PASS

MIN_SAMPLES = 8  # fewer say nothing about the shape of a distribution
# By the beginning of a unit's id. Needles are really solved; questions about real text are not.
IMPLAUSIBLE_MEAN = {"longbench/": 0.95, "mmlu/": 0.97, "bbh/": 0.98, "ruler/qa_": 0.95}
ECHO_HEAD_CHARACTERS = 40
ECHO_TAIL_CHARACTERS = 200
ECHOED_SHARE = 0.1  # a model may now and then begin its prompt anew; a harness that leaves prompts in does so always
# What is wrong with prompts, whatever the metric: it stays when outputs are scored again.
PROMPT_FLAGS = ("double_bos", "left_truncated", "missing_bos", "prompt_echoed")
NO_BOS = "no BOS"


def flags(rows: Sequence[Row], unit_id: str) -> list[str]:
    """Names of what looks wrong with a unit's rows, sorted.

    missing_samples is not among them: it needs the expected count (see :func:`summary`).
    """
    if not rows:
        return ["no_samples"]
    benchmark = unit_id.split("/")[0]
    found = _prompt_flags(rows)
    if benchmark in ONE_PASS:  # no answers, no task to solve by a trick
        return sorted(found)
    if benchmark != "mmlu" and all(not row.output.strip() for row in rows):
        found.add("all_empty")
    if len(rows) >= MIN_SAMPLES:
        found |= _shape_flags(rows, unit_id)
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


def echoes(output: str, prompt: str) -> bool:
    """Whether an output repeats its prompt, white space aside.

    It does if it begins as the prompt begins, if it begins with a piece of the prompt's end that is at least its last
    200 characters, or if the whole prompt stands anywhere in it. Prompts under 40 characters are not judged.
    """
    asked, answered = " ".join(prompt.split()), " ".join(output.split())
    if len(asked) < ECHO_HEAD_CHARACTERS:
        return False
    if answered.startswith(asked[:ECHO_HEAD_CHARACTERS]) or asked in answered:
        return True
    tail = asked[-ECHO_TAIL_CHARACTERS:]
    place = answered.find(tail)
    return place >= 0 and asked.endswith(answered[: place + len(tail)])


def bos(rows: Sequence[Row]) -> int | list[int] | str:
    """How many BOS tokens stand at the start of the prompts: one number, all that occur, or "no BOS" to have."""
    counts = sorted({row.bos_tokens for row in rows if row.bos_tokens is not None})
    return NO_BOS if not counts else counts[0] if len(counts) == 1 else counts


def _share(values: Iterable[bool | None]) -> float:
    return fmean(bool(value) for value in values)


def summary(
    rows: Sequence[Row],
    unit_id: str,
    *,
    n_expected: int,
    seconds: float,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `summary.json` holds: n, n_expected, mean_score, shares, bos, flags, seconds, a benchmark's notes."""
    found = flags(rows, unit_id)
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
