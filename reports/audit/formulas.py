"""The paper's formulas over intervals, by the kind of derivation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from operator import mul

import numpy as np

from tokenweight.reports.audit.intervals import Interval, weighted_sum
from tokenweight.reports.audit.rules import Derivation
from tokenweight.reports.statistics import pearson, spearman
from tokenweight.reports.units import Floats

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
