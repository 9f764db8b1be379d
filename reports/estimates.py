"""A cell in the making: its value with its terms and bootstrap draws, and means and differences of such cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np

from tokenweight.reports.model import Status
from tokenweight.reports.statistics import bootstrap_means, interval_95
from tokenweight.reports.units import Floats

_SEVERITY: tuple[Status, ...] = ("complete", "partial", "missing", "refused")

Run = TypeVar("Run", bound=Hashable)


@dataclass(frozen=True)
class Reason:
    """Why there is no value: in which row, and what is wrong."""

    row: str  # its label; "" where it concerns the whole column
    text: str


@dataclass(frozen=True)
class Term:
    """A task's share of a value: weight times the mean of `scores` [n], which are in the order of their doc_id."""

    scores: Floats
    items: str  # digest of which samples these are
    weight: float

    @property
    def contributions(self) -> Floats:
        """Each sample's share of the value: [n], their sum is the term."""
        return self.scores * (self.weight / len(self.scores))


@dataclass(frozen=True)
class Estimate:
    """A cell in the making. `draws` is None where a task has a single sample: no interval then.

    The value is the sum of its terms, or exp of it (perplexity).
    """

    status: Status
    value: float | None = None
    draws: Floats | None = None
    terms: Mapping[str, Term] = field(default_factory=dict)  # by what seeds the resampling of their items
    exponential: bool = False
    n: int = 0
    n_expected: int | None = None
    reasons: tuple[Reason, ...] = ()  # why there is no value
    remarks: tuple[str, ...] = ()  # what to know about the column's value, whichever row
    addresses: tuple[str, ...] = ()
    spread: float | None = None  # over seeds


RunEstimates = dict[tuple[str, int], dict[str, Estimate]]  # row and seed -> column -> estimate


def interval(draws: Floats | None) -> tuple[float | None, float | None]:
    """The 95 % interval of draws, where there are any."""
    return (None, None) if draws is None else interval_95(draws)


def resampled(estimates: Mapping[Run, Estimate]) -> dict[Run, Estimate]:
    """The estimates of one column with their draws: all rows resample the same items, task by task."""
    together: dict[tuple[str, int], list[tuple[Run, Term]]] = defaultdict(list)
    for run, estimate in estimates.items():
        if estimate.terms and all(len(term.scores) > 1 for term in estimate.terms.values()):
            for key, term in estimate.terms.items():
                together[key, len(term.scores)].append((run, term))
    draws: dict[Run, Floats] = {}
    for (key, _), terms in together.items():
        means = bootstrap_means(key, np.stack([term.scores for _, term in terms]))
        for (run, term), drawn in zip(terms, means, strict=True):
            draws[run] = draws.get(run, 0.0) + term.weight * drawn
    return {
        run: replace(estimate, draws=np.exp(draws[run]) if estimate.exponential else draws[run])
        if run in draws
        else estimate
        for run, estimate in estimates.items()
    }


def mean_of(columns: list[Estimate]) -> Estimate:
    """Plain mean of other cells of the row; incomplete where any of them is, for the same reasons."""
    return _combine(columns, "mean")


def less(estimate: Estimate, reference: Estimate) -> Estimate:
    """The difference of two cells on the same resampled items; rows with equal scores differ by exactly nothing."""
    difference = _combine([estimate, reference], "difference")
    if difference.draws is not None and equal_scores(estimate, reference):
        return replace(difference, draws=np.zeros_like(difference.draws))
    return difference


def same_samples(estimate: Estimate, reference: Estimate) -> bool:
    """Whether both rest on the same samples of the same tasks, so that they can be compared in pairs."""
    first, second = ({key: term.items for key, term in side.terms.items()} for side in (estimate, reference))
    return bool(first) and first == second


def equal_scores(estimate: Estimate, reference: Estimate) -> bool:
    """Whether each sample has the same score in both."""
    return same_samples(estimate, reference) and all(
        np.array_equal(term.scores, reference.terms[key].scores) for key, term in estimate.terms.items()
    )


def resampling_moves(estimate: Estimate, reference: Estimate | None = None) -> bool:
    """Whether some task's samples differ in score (or in the difference to the reference): else an interval has no width."""
    return any(
        np.ptp(term.scores - (reference.terms[key].scores if reference else 0.0)) > 0
        for key, term in estimate.terms.items()
    )


def mean_of_seeds(seeds: Sequence[Estimate]) -> Estimate:
    """One cell from the same cell with each seed: their mean, and how far they spread (standard deviation).

    All seeds are measured on the same items, so n stays that of one (of an incomplete one where there is one); the
    interval is that of the mean over seeds, on resampled items. A model that does not depend on the seed counts once.
    """
    distinct = list({estimate.addresses or index: estimate for index, estimate in enumerate(seeds)}.values())
    if len(distinct) == 1:
        return distinct[0]
    mean = _combine(distinct, "mean")
    shown = max(distinct, key=lambda estimate: _SEVERITY.index(estimate.status))  # the first one that is not whole
    values = [estimate.value for estimate in distinct if estimate.value is not None]
    shared = all(same_samples(estimate, distinct[0]) for estimate in distinct)
    return replace(
        mean,
        terms=_mean_terms(distinct) if shared else {},
        exponential=distinct[0].exponential,
        n=shown.n,
        n_expected=shown.n_expected,
        spread=None if mean.value is None else float(np.std(values, ddof=1)),
    )


def _combine(parts: list[Estimate], how: Literal["mean", "difference"]) -> Estimate:
    status = max((part.status for part in parts), key=_SEVERITY.index)
    counted = parts if how == "mean" else parts[:1]  # a difference rests on the items that both rows share
    expected = [part.n_expected for part in counted]
    whole = Estimate(
        status,
        n=sum(part.n for part in counted),
        n_expected=sum(n for n in expected if n) if all(n is not None for n in expected) else None,
        reasons=tuple(dict.fromkeys(reason for part in parts for reason in part.reasons)),
        remarks=tuple(dict.fromkeys(remark for part in parts for remark in part.remarks)),
        addresses=tuple(dict.fromkeys(address for part in parts for address in part.addresses)),
    )
    values = [part.value for part in parts if part.value is not None]
    draws = [part.draws for part in parts if part.draws is not None]
    if status != "complete" or len(values) < len(parts):
        return whole
    weights = np.full(len(parts), 1 / len(parts)) if how == "mean" else np.array([1.0, -1.0])
    return replace(
        whole,
        value=float(weights @ np.array(values)),
        draws=weights @ np.stack(draws) if len(draws) == len(parts) else None,
        terms=_scaled_terms(parts) if how == "mean" else {},
    )


def _scaled_terms(columns: Sequence[Estimate]) -> dict[str, Term]:
    """Terms of a mean of columns, each with its share of the weight; {} where columns share samples."""
    keys = [key for column in columns for key in column.terms]
    if len(set(keys)) != len(keys):
        return {}
    return {
        key: replace(term, weight=term.weight / len(columns))
        for column in columns
        for key, term in column.terms.items()
    }


def _mean_terms(seeds: Sequence[Estimate]) -> dict[str, Term]:
    """Terms of a mean over seeds: each sample's mean score."""
    return {
        key: replace(term, scores=np.mean([seed.terms[key].scores for seed in seeds], axis=0))
        for key, term in seeds[0].terms.items()
    }
