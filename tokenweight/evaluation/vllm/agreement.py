"""Whether two backends answer the same questions alike: prompts, outputs, scores, log-likelihoods. Needs no model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean, median

from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Precision


@dataclass(frozen=True)
class Bounds:
    """What two right backends stay within (docs/evaluate.md says why); prompts and token counts must be identical."""

    outputs_equal: float  # least share of equal outputs; MMLU: of equal answers
    differ_at_start: float  # greatest share of outputs that differ from the first character on
    log_likelihood: float  # nats, greatest difference of a choice's log-likelihood
    score: float  # greatest difference of mean scores that the samples' chance (95 %) does not explain


BOUNDS: dict[Precision, Bounds] = {
    "fp32": Bounds(outputs_equal=0.95, differ_at_start=0.02, log_likelihood=0.01, score=0.02),
    "bf16": Bounds(outputs_equal=0.0, differ_at_start=0.10, log_likelihood=0.5, score=0.02),
}
MMLU_ANSWERS_EQUAL = 0.90  # whatever the precision: answers change where two choices are nearly as likely
_BOOTSTRAPS = 10_000


@dataclass(frozen=True)
class Pair:
    """One unit's rows by two backends."""

    unit: Unit
    first: Sequence[Row]
    second: Sequence[Row]


@dataclass(frozen=True)
class Agreement:
    """One benchmark by two backends, over the samples that both have. Scores 0..1, log-likelihoods in nats."""

    benchmark: str
    n: int
    only_one_has: int  # samples that one backend alone answered
    prompts_differ: int  # by SHA-256 of the text, or by the count of tokens
    outputs_equal: float  # share; MMLU: of equal answers
    differ_at_start: float | None  # share of outputs that differ from the first character on; None: MMLU
    first_difference: tuple[int, float] | None  # characters before it: least, median; None: MMLU, or all are equal
    scores: tuple[float, float]
    difference: float  # second minus first
    interval: tuple[float, float]  # 95 %, paired bootstrap over samples
    log_likelihood_difference: float | None  # greatest; MMLU


def compare(pairs: Iterable[Pair]) -> list[Agreement]:
    """The agreement of each benchmark that has samples in common."""
    by_benchmark: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_benchmark.setdefault(pair.unit.benchmark, []).append(pair)
    return [_agreement(name, by_benchmark[name]) for name in BENCHMARKS if name in by_benchmark]


def _agreement(benchmark: str, pairs: list[Pair]) -> Agreement:
    common: list[tuple[Row, Row]] = []
    alone = 0
    for pair in pairs:
        first, second = ({row.doc_id: row for row in rows} for rows in (pair.first, pair.second))
        both = first.keys() & second.keys()
        alone += len(first.keys() ^ second.keys())
        common += [(first[i], second[i]) for i in sorted(both)]
    if not common:
        raise ValueError(f"{benchmark}: no sample in common")
    choices = BENCHMARKS[benchmark].choices
    starts = [_common_start(a.output, b.output) for a, b in common if a.output != b.output and not choices]
    differences = [b.score - a.score for a, b in common]
    return Agreement(
        benchmark=benchmark,
        n=len(common),
        only_one_has=alone,
        prompts_differ=sum(
            (a.prompt_sha256, a.n_prompt_tokens) != (b.prompt_sha256, b.n_prompt_tokens) for a, b in common
        ),
        outputs_equal=fmean(a.filtered == b.filtered if choices else a.output == b.output for a, b in common),
        differ_at_start=None if choices else sum(start == 0 for start in starts) / len(common),
        first_difference=(min(starts), median(starts)) if starts else None,
        scores=(fmean(a.score for a, _ in common), fmean(b.score for _, b in common)),
        difference=fmean(differences),
        interval=_interval(differences),
        log_likelihood_difference=max(_farthest(a, b) for a, b in common) if choices else None,
    )


def _common_start(a: str, b: str) -> int:
    """Characters before the first difference."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _farthest(a: Row, b: Row) -> float:
    return max(abs(float(x) - float(y)) for x, y in zip(json.loads(a.output), json.loads(b.output), strict=True))


def _interval(differences: list[float]) -> tuple[float, float]:
    """95 % interval of the mean by bootstrap; where all are equal there is nothing to draw."""
    import numpy as np

    values = np.asarray(differences)
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    draws = np.random.default_rng(0).choice(values, (_BOOTSTRAPS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def disagreements(agreement: Agreement, bounds: Bounds) -> list[str]:
    """What is out of bounds, each in a few words."""
    found = []
    if agreement.only_one_has:
        found.append(f"{agreement.only_one_has} samples were answered by one backend alone")
    if agreement.prompts_differ:
        found.append(f"{agreement.prompts_differ} of {agreement.n} prompts differ")
    choices = agreement.log_likelihood_difference is not None
    least = MMLU_ANSWERS_EQUAL if choices else bounds.outputs_equal
    if agreement.outputs_equal < least:
        what = "answers" if choices else "outputs"
        found.append(f"{agreement.outputs_equal:.1%} of the {what} are equal (at least {least:.0%})")
    if (agreement.differ_at_start or 0) > bounds.differ_at_start:
        found.append(
            f"{agreement.differ_at_start:.1%} of the outputs differ from their first character "
            f"(at most {bounds.differ_at_start:.0%})"
        )
    if (agreement.log_likelihood_difference or 0) > bounds.log_likelihood:
        found.append(
            f"a log-likelihood differs by {agreement.log_likelihood_difference:.3g} nats "
            f"(at most {bounds.log_likelihood:g})"
        )
    low, high = agreement.interval
    if abs(agreement.difference) > bounds.score and not low <= 0 <= high:
        found.append(
            f"scores differ by {100 * agreement.difference:+.1f} points, 95 % interval [{100 * low:.1f}, {100 * high:.1f}]"
        )
    return found
