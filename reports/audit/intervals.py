"""Intervals of exact fractions (what a printed number may have been before it was rounded), and the paper's formulas over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import mul

import numpy as np

from tokenweight.reports.audit.rules import Derivation
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.statistics import pearson, spearman
from tokenweight.reports.units import Floats


@dataclass(frozen=True)
class Interval:
    """All values from `low` to `high`, both included; a rounded value may lie on either border."""

    low: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, value: Fraction | int | str) -> Interval:
        """One value."""
        return cls(Fraction(value), Fraction(value))

    @classmethod
    def printed(cls, text: str) -> Interval | None:
        """A number as printed: "0.20" is 0.195 to 0.205, "<0.01" is 0 to 0.01; None for what is no number."""
        if text.startswith("<"):
            return cls(Fraction(0), Fraction(text[1:]))
        try:
            value = Fraction(text)
        except ValueError:
            return None
        half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
        return cls(value - half, value + half)

    @property
    def middle(self) -> Fraction:
        """The printed number itself, where that is what the interval is of."""
        return (self.low + self.high) / 2

    def meets(self, other: Interval) -> bool:
        """Whether a value lies in both."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __truediv__(self, other: Interval) -> Interval:
        """ZeroDivisionError where the divisor may be 0."""
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor may be 0")
        return self * Interval(1 / other.high, 1 / other.low)

    def __abs__(self) -> Interval:
        low, high = sorted((abs(self.low), abs(self.high)))
        return Interval(Fraction(0) if self.low <= 0 <= self.high else low, high)


def weighted_sum(weights: Sequence[Fraction], terms: Sequence[Interval]) -> Interval:
    """Sum of weight times term; each term once, so that no interval is counted twice."""
    total = Interval.exactly(0)
    for weight, term in zip(weights, terms, strict=True):
        total += Interval.exactly(weight) * term
    return total


def interval_of(place: str, number: PaperNumber) -> Interval:
    """What a printed number may stand for; `counts` are exact. ValueError for what is no number."""
    interval = Interval.exactly(number.printed) if place.startswith("counts/") else Interval.printed(number.printed)
    if interval is None:
        raise ValueError(f"{place}: {number.printed!r} is no number")
    return interval


Terms = Sequence[Interval]
THOUSAND = Interval.exactly(1000)


def recompute(rule: Derivation, terms: Terms) -> Interval:
    """What a rule gives, in the unit of the printed value, for sources that lie in `terms`."""
    return _FORMULAS[rule.kind](rule, terms) * Interval.exactly(rule.factor)


def _mean(rule: Derivation, terms: Terms) -> Interval:
    weights = rule.weights or (1,) * len(terms)
    return weighted_sum([Fraction(weight, sum(weights)) for weight in weights], terms)


def _time_factor(_: Derivation, terms: Terms) -> Interval:
    """Hours of training, and of scoring what is trained on, over hours of training (Table 6)."""
    scoring, training, thousand_sequences, steps, batch = terms
    trained_share = steps * batch / (thousand_sequences * THOUSAND)
    return Interval.exactly(1) + scoring * trained_share / training


def _windows(_: Derivation, terms: Terms) -> Interval:
    """Windows after the first: what is left of the long context over the stride (Section 4, Datasets)."""
    long, short, overlap = terms
    return (long - short) / (short - overlap)


def _rotary_base(rule: Derivation, terms: Terms) -> Interval:
    """NTK-aware base: b f^(d / (d - 2)) of exact numbers."""
    base, factor = (float(term.middle) for term in terms)
    dimension = rule.dimension or 0
    return Interval.exactly(Fraction(base * factor ** (dimension / (dimension - 2))))


def _correlation(statistic: Callable[[Floats, Floats], float | None]) -> Callable[[Derivation, Terms], Interval]:
    """Of the first half of the terms with the second.

    The interval adds up the change by each term's own rounding: to first order, the most that all can do together.
    """

    def of(values: Floats) -> float:
        result = statistic(*np.split(values, 2))
        return float("nan") if result is None else result

    def formula(_: Derivation, terms: Terms) -> Interval:
        values = np.array([float(term.middle) for term in terms])
        halves = np.diag([float(term.high - term.middle) for term in terms])
        centre = of(values)
        slack = sum(max(abs(of(values + half) - centre), abs(of(values - half) - centre)) for half in halves)
        return Interval(Fraction(centre - slack), Fraction(centre + slack))

    return formula


_FORMULAS: dict[str, Callable[[Derivation, Terms], Interval]] = {
    "mean": _mean,
    "weighted mean": _mean,
    "difference": lambda _, terms: terms[0] - terms[1],
    "absolute difference": lambda _, terms: abs(terms[0] - terms[1]),
    "repeated value": lambda _, terms: terms[0],
    "quotient": lambda _, terms: terms[0] / terms[1],
    "product": lambda _, terms: reduce(mul, terms),
    "kept share": lambda _, terms: Interval.exactly(100) * (Interval.exactly(1) - terms[0]),
    "windows": _windows,
    "time factor": _time_factor,
    "rotary base": _rotary_base,
    "pearson": _correlation(pearson),
    "spearman": _correlation(spearman),
}
