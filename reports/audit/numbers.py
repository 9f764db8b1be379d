"""What a printed number may have been before it was rounded, as exact fractions, and the paper's formulas over that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tokenweight.reports.audit.rules import Derivation
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.statistics import pearson, spearman


class Interval(NamedTuple):
    """All values from `low` to `high`, both included; a rounded value may lie on either border."""

    low: Fraction
    high: Fraction

    @property
    def middle(self) -> Fraction:
        """The printed number itself, where that is what the interval is of."""
        return (self.low + self.high) / 2

    def meets(self, other: Interval) -> bool:
        """Whether a value lies in both."""
        return self.low <= other.high and other.low <= self.high


def interval_of(place: str, number: PaperNumber) -> Interval:
    """A printed number before it was rounded: "0.20" is 0.195 to 0.205, "<0.01" is 0 to 0.01; `counts` are exact.

    ValueError for what is no number.
    """
    text = number.printed
    if text.startswith("<"):
        return Interval(Fraction(0), Fraction(text[1:]))
    try:
        value = Fraction(text)
    except ValueError:
        raise ValueError(f"{place}: {text!r} is no number") from None
    half = 0 if place.startswith("counts/") else Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
    return Interval(value - half, value + half)


def mean(terms: Sequence[Fraction], weights: Sequence[int] = ()) -> Fraction:
    """Weighted, where there are weights."""
    weights = weights or (1,) * len(terms)
    return sum((w * term for w, term in zip(weights, terms, strict=True)), Fraction(0)) / sum(weights)


_FORMULAS: dict[str, Callable[..., Fraction]] = {
    "difference": lambda a, b: a - b,
    "absolute difference": lambda a, b: abs(a - b),
    "repeated value": lambda a: a,
    "quotient": lambda a, b: a / b,
    "product": lambda *factors: prod(factors, start=Fraction(1)),
    "kept share": lambda share: 100 * (1 - share),
    # Windows after the first: what is left of the long context over the stride (Section 4, Datasets).
    "windows": lambda long, short, overlap: (long - short) / (short - overlap),
    # Hours of training, and of scoring what is trained on, over hours of training (Table 6).
    "time factor": lambda scoring, training, thousands, steps, batch: (
        1 + scoring / training * steps * batch / (1000 * thousands)
    ),
}


def recompute(rule: Derivation, terms: Sequence[Interval]) -> Interval:
    """What a rule gives, in the unit of the printed value, for sources that lie in `terms`.

    Each formula rises or falls with each of its terms all the way, so that its extremes are at their ends.
    """
    if rule.kind in ("pearson", "spearman"):
        return _correlation(rule.kind, terms)
    values = [_formula(rule, ends) * Fraction(rule.factor) for ends in product(*map(set, terms))]
    if rule.kind == "absolute difference" and terms[0].meets(terms[1]):
        values.append(Fraction(0))  # where the difference changes its sign
    return Interval(min(values), max(values))


def _formula(rule: Derivation, terms: tuple[Fraction, ...]) -> Fraction:
    if rule.kind in ("mean", "weighted mean"):
        return mean(terms, rule.weights)
    if rule.kind == "rotary base":  # NTK-aware: b f^(d / (d - 2))
        base, factor = map(float, terms)
        return Fraction(base * factor ** (rule.dimension / (rule.dimension - 2)))
    return _FORMULAS[rule.kind](*terms)


def _correlation(kind: str, terms: Sequence[Interval]) -> Interval:
    """Of the first half of the terms with the second.

    The interval adds up the change by each term's own rounding: to first order, the most that all can do together.
    """
    statistic = pearson if kind == "pearson" else spearman

    def of(values: np.ndarray) -> float:
        result = statistic(*np.split(values, 2))
        return float("nan") if result is None else result

    values = np.array([float(term.middle) for term in terms])
    halves = np.diag([float(term.high - term.middle) for term in terms])
    centre = of(values)
    slack = sum(max(abs(of(values + half) - centre), abs(of(values - half) - centre)) for half in halves)
    return Interval(Fraction(centre - slack), Fraction(centre + slack))
