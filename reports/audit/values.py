"""What a printed number may have been before it was rounded, as exact fractions, and the paper's formulas over that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from operator import mul
from typing import NamedTuple

import numpy as np

from tokenweight.reports.audit.rules import Cells, Check, Derivation, rules
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import place_name
from tokenweight.reports.statistics import pearson, spearman

_REPEATED = "repeated value"


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


def check_values(cells: Cells) -> Iterator[Check]:
    """Each derived value; one that does not follow is tried again with its sources' other printed values."""
    derived = [(rule, cell, sources) for rule in rules().derivations for cell, sources in rule.each()]
    follows = [_follows(*each, cells) for each in derived]
    # Places whose value is printed elsewhere too, and differently there.
    differing = [
        (cell, sources[0])
        for (rule, cell, sources), holds in zip(derived, follows, strict=True)
        if rule.kind == _REPEATED and not holds
    ]
    twice = {here: there for pair in differing for here, there in (pair, pair[::-1])}
    for (rule, cell, sources), holds in zip(derived, follows, strict=True):
        other = {} if holds else {source: twice[source] for source in sources if source in twice}
        again = tuple(other.get(source, source) for source in sources)
        helps = bool(other) and cell not in other.values() and _follows(rule, cell, again, cells)
        terms = [interval_of(source, cells[source]) for source in sources]
        as_printed = recompute(rule, [Interval(term.middle, term.middle) for term in terms]).middle
        signed = f"{'+' if cell.endswith('-difference') else ''}.{len(cells[cell].printed.partition('.')[2]) + 1}f"
        given, low, high = (format(float(value), signed) for value in (as_printed, *recompute(rule, terms)))
        meaning = f"{rule.kind.capitalize()} of {_printed(sources, cells)} ({rule.place})."
        meaning += f" It follows with {_printed(other.values(), cells)}." if helps else ""
        yield Check(
            kind=rule.kind,
            about=cell,
            tables=(cell.split("/")[0],),
            place=rule.place,
            reading=rule.reading,
            printed=cells[cell].printed,
            recomputed=given + (f" ({low} to {high})" if low != high else ""),
            follows=holds,
            meaning=meaning if holds else f"{meaning} {rules().remarks.get(cell, '')}".strip(),
        )


def _printed(places: Iterable[str], cells: Cells) -> str:
    return ", ".join(f"{place_name(place)} {cells[place].printed}" for place in places)


def _follows(rule: Derivation, cell: str, sources: Sequence[str], cells: Cells) -> bool:
    printed, first = cells[cell], cells[sources[0]]
    # A value that is repeated with as many decimals is the same number, not only a near one.
    if rule.kind == _REPEATED and printed.decimals == first.decimals and printed.value != first.value:
        return False
    return recompute(rule, [interval_of(source, cells[source]) for source in sources]).meets(interval_of(cell, printed))


_FORMULAS: dict[str, Callable[..., Fraction]] = {
    "difference": lambda a, b: a - b,
    "absolute difference": lambda a, b: abs(a - b),
    _REPEATED: lambda a: a,
    "quotient": lambda a, b: a / b,
    "product": lambda *factors: prod(factors, start=Fraction(1)),
    "mean": lambda *terms: sum(terms) / len(terms),
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
    if rule.kind == "weighted mean":
        return sum(map(mul, rule.weights, terms), Fraction(0)) / sum(rule.weights)
    if rule.kind == "rotary base":  # NTK-aware: b f^(d / (d - 2))
        base, factor = map(float, terms)
        return Fraction(base * factor ** (rule.dimension / (rule.dimension - 2)))
    return _FORMULAS[rule.kind](*terms)


def _correlation(kind: str, terms: Sequence[Interval]) -> Interval:
    """Of the first half of the terms with the second.

    The interval adds up the change by each term's own rounding: to first order, the most that all can do together.
    """
    statistic = pearson if kind == "pearson" else spearman
    values = np.array([float(term.middle) for term in terms])
    halves = np.diag([float(term.high - term.middle) for term in terms])
    centre, *moved = (statistic(*np.split(each, 2)) or 0.0 for each in (values, *(values + halves), *(values - halves)))
    slack = np.abs(np.array(moved) - centre).reshape(2, -1).max(axis=0).sum()
    return Interval(Fraction(centre - slack), Fraction(centre + slack))
