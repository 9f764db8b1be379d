"""Sentences of the paper as orders of numbers: each kind gives the comparisons that must hold.

A comparison holds or fails only where rounding cannot turn it; else it is "within rounding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, permutations

from tokenweight.reports.audit_model import ClaimCheck, Comparison
from tokenweight.reports.intervals import Interval, weighted_sum
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import interval_of, place_name
from tokenweight.reports.paper.rules import Claim

Cells = Mapping[str, PaperNumber]


@dataclass(frozen=True)
class _Number:
    name: str
    interval: Interval
    text: str  # as printed, or as computed from what is printed

    def __str__(self) -> str:
        return f"{self.name} {self.text}".strip()


ZERO = _Number("", Interval.exactly(0), "0")


def check_claim(claim: Claim, cells: Cells) -> ClaimCheck:
    """Compare what a sentence compares; the remark belongs to a sentence that does not hold."""
    check = ClaimCheck(
        quote=claim.quote,
        place=claim.place,
        kind=claim.kind,
        reading=claim.reading,
        comparisons=tuple(_KINDS[claim.kind](claim, cells)),
    )
    return check if check.holds else check.model_copy(update={"remark": claim.remark})


def _above(what: str, higher: _Number, lower: _Number) -> Comparison:
    text = f"{higher} > {lower} in {what}"
    if higher.interval.low >= lower.interval.high:
        return Comparison(text=text, outcome="holds")
    if higher.interval.high <= lower.interval.low:
        return Comparison(text=text, outcome="fails")
    return Comparison(text=text, outcome="within rounding")


def _groups(claim: Claim) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is compared at a time: each column, or all of them as their mean."""
    if claim.mean:
        yield f"mean of {', '.join(claim.columns)}", claim.columns
    else:
        yield from ((column, (column,)) for column in claim.columns)


def _number(table: str, row: str, columns: tuple[str, ...], cells: Cells) -> _Number | None:
    """A cell, or the mean of several; None where one of them is empty."""
    places = [f"{table}/{row}/{column}" for column in columns]
    if any(cells[place].printed == "-" for place in places):
        return None
    intervals = [interval_of(place, cells[place]) for place in places]
    mean = weighted_sum([Fraction(1, len(places))] * len(places), intervals)
    text = cells[places[0]].printed if len(places) == 1 else f"{float(mean.middle):.3f}"
    return _Number(row, mean, text)


def _given(table: str, rows: tuple[str, ...], columns: tuple[str, ...], cells: Cells) -> list[_Number]:
    numbers = (_number(table, row, columns, cells) for row in rows)
    return [number for number in numbers if number is not None]


def _others(claim: Claim, columns: tuple[str, ...], cells: Cells) -> list[_Number]:
    """All other rows of the table, or those that the claim names."""
    table = claim.than_table or claim.table
    rows = claim.than_rows or tuple(dict.fromkeys(p.split("/")[1] for p in cells if p.startswith(f"{table}/")))
    return _given(table, tuple(row for row in rows if row not in claim.rows), columns, cells)


def _extreme(claim: Claim, cells: Cells, sign: int) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        (row,) = _given(claim.table, claim.rows, columns, cells)
        for other in _others(claim, columns, cells):
            yield _above(what, *((row, other) if sign > 0 else (other, row)))


def _second(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        (row,) = _given(claim.table, claim.rows, columns, cells)
        best, *rest = sorted(_others(claim, columns, cells), key=lambda n: n.interval.middle, reverse=True)
        yield _above(what, best, row)
        yield from (_above(what, row, other) for other in rest)


def _not_largest(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        (row,) = _given(claim.table, claim.rows, columns, cells)
        yield _above(what, max(_others(claim, columns, cells), key=lambda n: n.interval.middle), row)


def _all_above(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    """Every row above every row of `than_rows`; without those, above its namesake in `than_table`."""
    table = claim.than_table or claim.table
    for what, columns in _groups(claim):
        for row in _given(claim.table, claim.rows, columns, cells):
            for other in _given(table, claim.than_rows or (row.name,), columns, cells):
                named = other if table == claim.table else replace(other, name=place_name(f"{table}/{other.name}"))
                yield _above(what, row, named)


def _one_above(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        best = max(_given(claim.table, claim.rows, columns, cells), key=lambda n: n.interval.middle)
        for other in _given(claim.than_table or claim.table, claim.than_rows, columns, cells):
            yield _above(what, best, other)


def _monotone(claim: Claim, cells: Cells, sign: int) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        for earlier, later in pairwise(_given(claim.table, claim.rows, columns, cells)):
            yield _above(what, *((later, earlier) if sign > 0 else (earlier, later)))


def _signed(claim: Claim, cells: Cells, sign: int) -> Iterator[Comparison]:
    for what, columns in _groups(claim):
        for row in _given(claim.table, claim.rows, columns, cells):
            yield _above(what, *((row, ZERO) if sign > 0 else (ZERO, row)))


def _narrower(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    """The rows spread less than the other table's."""
    for what, columns in _groups(claim):
        own = _spread(claim.table, claim.rows, columns, cells)
        yield _above(what, _spread(claim.than_table or claim.table, claim.than_rows, columns, cells), own)


def _spread(table: str, rows: tuple[str, ...], columns: tuple[str, ...], cells: Cells) -> _Number:
    numbers = sorted(_given(table, rows, columns, cells), key=lambda n: n.interval.middle)
    spread = numbers[-1].interval - numbers[0].interval
    return _Number(f"range of {place_name(table)}", spread, f"{float(spread.middle):.2f}")


def _same_order(claim: Claim, cells: Cells) -> Iterator[Comparison]:
    """Columns in which `rows` is larger than in others are larger in `than_rows` too."""
    (first,), (second,) = claim.rows, claim.than_rows
    for higher, lower in permutations(claim.columns, 2):
        a, b, x, y = (
            interval_of(place, cells[place])
            for row in (first, second)
            for place in (f"{claim.table}/{row}/{higher}", f"{claim.table}/{row}/{lower}")
        )
        if a.middle > b.middle:
            text = [cells[f"{claim.table}/{second}/{column}"].printed for column in (higher, lower)]
            yield _above(second, _Number(higher, x, text[0]), _Number(lower, y, text[1]))


_KINDS: dict[str, Callable[[Claim, Cells], Iterator[Comparison]]] = {
    "largest": lambda claim, cells: _extreme(claim, cells, 1),
    "smallest": lambda claim, cells: _extreme(claim, cells, -1),
    "second": _second,
    "not largest": _not_largest,
    "above": _all_above,
    "one above": _one_above,
    "rising": lambda claim, cells: _monotone(claim, cells, 1),
    "falling": lambda claim, cells: _monotone(claim, cells, -1),
    "positive": lambda claim, cells: _signed(claim, cells, 1),
    "negative": lambda claim, cells: _signed(claim, cells, -1),
    "narrower": _narrower,
    "same order": _same_order,
}
