"""Sentences of the paper as orders of numbers: each kind gives the pairs (higher, lower) that must hold.

A comparison holds or fails only where rounding cannot turn it; else it is "within rounding".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, permutations, product

from tokenweight.reports.audit.numbers import Interval, interval_of, mean
from tokenweight.reports.audit.rules import Claim, ClaimCheck, Comparison
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import place_name

Cells = Mapping[str, PaperNumber]


@dataclass(frozen=True)
class _Number:
    name: str
    interval: Interval
    text: str  # as printed, or as computed from what is printed

    def __str__(self) -> str:
        return f"{self.name} {self.text}".strip()


_Pairs = Iterable[tuple[_Number, _Number]]
_ZERO = _Number("", Interval(Fraction(0), Fraction(0)), "0")


def check_claim(claim: Claim, cells: Cells) -> ClaimCheck:
    """Compare what a sentence compares; the remark belongs to a sentence that does not hold."""
    if claim.kind == "same order":
        comparisons = [_comparison(claim.than_rows[0], *pair) for pair in _same_order(claim, cells)]
    else:
        alone = {column: (column,) for column in claim.columns}
        groups = {f"mean of {', '.join(claim.columns)}": claim.columns} if claim.mean else alone
        comparisons = [
            _comparison(what, *pair) for what, columns in groups.items() for pair in _pairs(claim, cells, columns)
        ]
    holds = all(comparison.outcome == "holds" for comparison in comparisons)
    return ClaimCheck(
        quote=claim.quote,
        place=claim.place,
        kind=claim.kind,
        reading=claim.reading,
        comparisons=tuple(comparisons),
        remark="" if holds else claim.remark,
    )


def _comparison(what: str, higher: _Number, lower: _Number) -> Comparison:
    text = f"{higher} > {lower} in {what}"
    if higher.interval.low >= lower.interval.high:
        return Comparison(text=text, outcome="holds")
    if higher.interval.high <= lower.interval.low:
        return Comparison(text=text, outcome="fails")
    return Comparison(text=text, outcome="within rounding")


def _pairs(claim: Claim, cells: Cells, columns: tuple[str, ...]) -> _Pairs:
    """Of the claim's rows with the others: those that it names, else all other rows of the table."""
    table = claim.than_table or claim.table
    in_table = dict.fromkeys(place.split("/")[1] for place in cells if place.startswith(f"{table}/"))
    rows = _numbers(cells, claim.table, claim.rows, columns)
    namesakes = claim.kind == "above" and not claim.than_rows  # each row above the same row of the other table
    named = claim.rows if namesakes else claim.than_rows or [row for row in in_table if row not in claim.rows]
    others = _numbers(cells, table, named, columns)
    if table != claim.table:
        others = [replace(other, name=place_name(f"{table}/{other.name}")) for other in others]
    match claim.kind:
        case "above" if namesakes:
            return zip(rows, others, strict=True)
        case "above" | "largest":
            return product(rows, others)
        case "smallest":
            return ((other, row) for row in rows for other in others)
        case "second":
            best, *rest = sorted(others, key=_middle, reverse=True)
            return [(best, rows[0]), *product(rows, rest)]
        case "not largest":
            return product([max(others, key=_middle)], rows)
        case "one above":
            return product([max(rows, key=_middle)], others)
        case "rising":
            return ((later, earlier) for earlier, later in pairwise(rows))
        case "falling":
            return pairwise(rows)
        case "positive":
            return product(rows, [_ZERO])
        case "negative":
            return product([_ZERO], rows)
        case "narrower":
            return [(_spread(table, others), _spread(claim.table, rows))]
    raise ValueError(claim.kind)


def _numbers(cells: Cells, table: str, rows: Iterable[str], columns: tuple[str, ...]) -> list[_Number]:
    """Of each row the cell, or the mean of several, as long as none of them is empty."""
    found = []
    for row in rows:
        places = [f"{table}/{row}/{column}" for column in columns]
        if any(cells[place].printed == "-" for place in places):
            continue
        lows, highs = zip(*(interval_of(place, cells[place]) for place in places), strict=True)
        interval = Interval(mean(lows), mean(highs))
        text = cells[places[0]].printed if len(places) == 1 else f"{float(interval.middle):.3f}"
        found.append(_Number(row, interval, text))
    return found


def _spread(table: str, rows: Sequence[_Number]) -> _Number:
    lowest, *_, highest = (row.interval for row in sorted(rows, key=_middle))
    spread = Interval(highest.low - lowest.high, highest.high - lowest.low)
    return _Number(f"range of {place_name(table)}", spread, f"{float(spread.middle):.2f}")


def _middle(number: _Number) -> Fraction:
    return number.interval.middle


def _same_order(claim: Claim, cells: Cells) -> Iterator[tuple[_Number, _Number]]:
    """Columns in which `rows` is larger than in others are larger in `than_rows` too."""
    (first,), (second,) = claim.rows, claim.than_rows
    for pair in permutations(claim.columns, 2):
        a, b = (interval_of(place, cells[place]) for place in (f"{claim.table}/{first}/{column}" for column in pair))
        if a.middle > b.middle:
            ((higher,), (lower,)) = (_numbers(cells, claim.table, (second,), (column,)) for column in pair)
            yield replace(higher, name=pair[0]), replace(lower, name=pair[1])
