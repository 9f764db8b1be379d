"""Sentences of the paper as orders of numbers: each kind gives the pairs (higher, lower) that must hold.

A comparison holds or fails only where rounding cannot turn it; else it is "within rounding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, permutations

from tokenweight.reports.audit.intervals import Interval, interval_of, weighted_sum
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


Pairs = Iterable[tuple[_Number, _Number]]
ZERO = _Number("", Interval.exactly(0), "0")


@dataclass(frozen=True)
class _Compared:
    """What a claim compares at a time: each column alone, or all of them as their mean."""

    claim: Claim
    columns: tuple[str, ...]
    cells: Cells

    @property
    def rows(self) -> list[_Number]:
        return self.given(self.claim.table, self.claim.rows)

    @property
    def than_table(self) -> str:
        return self.claim.than_table or self.claim.table

    @property
    def others(self) -> list[_Number]:
        """All other rows of the table, or those that the claim names."""
        places = (place.split("/") for place in self.cells if place.startswith(f"{self.than_table}/"))
        rows = self.claim.than_rows or tuple(dict.fromkeys(row for _, row, _ in places))
        return self.given(self.than_table, tuple(row for row in rows if row not in self.claim.rows))

    def given(self, table: str, rows: tuple[str, ...]) -> list[_Number]:
        """Of each row the cell, or the mean of several, as long as none of them is empty."""
        places = {row: [f"{table}/{row}/{column}" for column in self.columns] for row in rows}
        return [
            self._mean(row, of_row)
            for row, of_row in places.items()
            if all(self.cells[place].printed != "-" for place in of_row)
        ]

    def _mean(self, row: str, places: list[str]) -> _Number:
        intervals = [interval_of(place, self.cells[place]) for place in places]
        mean = weighted_sum([Fraction(1, len(places))] * len(places), intervals)
        text = self.cells[places[0]].printed if len(places) == 1 else f"{float(mean.middle):.3f}"
        return _Number(row, mean, text)


def check_claim(claim: Claim, cells: Cells) -> ClaimCheck:
    """Compare what a sentence compares; the remark belongs to a sentence that does not hold."""
    if claim.kind == "same order":
        comparisons = [_comparison(claim.than_rows[0], *pair) for pair in _same_order(claim, cells)]
    else:
        groups = (
            {f"mean of {', '.join(claim.columns)}": claim.columns} if claim.mean else {c: (c,) for c in claim.columns}
        )
        comparisons = [
            _comparison(what, higher, lower)
            for what, columns in groups.items()
            for higher, lower in _KINDS[claim.kind](_Compared(claim, columns, cells))
        ]
    check = ClaimCheck(
        quote=claim.quote, place=claim.place, kind=claim.kind, reading=claim.reading, comparisons=tuple(comparisons)
    )
    return check if check.holds else check.model_copy(update={"remark": claim.remark})


def _comparison(what: str, higher: _Number, lower: _Number) -> Comparison:
    text = f"{higher} > {lower} in {what}"
    if higher.interval.low >= lower.interval.high:
        return Comparison(text=text, outcome="holds")
    if higher.interval.high <= lower.interval.low:
        return Comparison(text=text, outcome="fails")
    return Comparison(text=text, outcome="within rounding")


def _middle(number: _Number) -> Fraction:
    return number.interval.middle


def _second(compared: _Compared) -> Pairs:
    (row,) = compared.rows
    best, *rest = sorted(compared.others, key=_middle, reverse=True)
    return [(best, row), *((row, other) for other in rest)]


def _all_above(compared: _Compared) -> Pairs:
    """Every row above every row of `than_rows`; without those, above its namesake in `than_table`."""
    table = compared.than_table
    for row in compared.rows:
        for other in compared.given(table, compared.claim.than_rows or (row.name,)):
            same = table == compared.claim.table
            yield row, other if same else replace(other, name=place_name(f"{table}/{other.name}"))


def _one_above(compared: _Compared) -> Pairs:
    best = max(compared.rows, key=_middle)
    return ((best, other) for other in compared.given(compared.than_table, compared.claim.than_rows))


def _narrower(compared: _Compared) -> Pairs:
    """The rows spread less than the other table's."""
    claim = compared.claim
    own = _spread(compared, claim.table, claim.rows)
    return [(_spread(compared, compared.than_table, claim.than_rows), own)]


def _spread(compared: _Compared, table: str, rows: tuple[str, ...]) -> _Number:
    lowest, *_, highest = sorted(compared.given(table, rows), key=_middle)
    spread = highest.interval - lowest.interval
    return _Number(f"range of {place_name(table)}", spread, f"{float(spread.middle):.2f}")


def _same_order(claim: Claim, cells: Cells) -> Iterator[tuple[_Number, _Number]]:
    """Columns in which `rows` is larger than in others are larger in `than_rows` too."""
    (first,), (second,) = claim.rows, claim.than_rows
    for pair in permutations(claim.columns, 2):
        places = [f"{claim.table}/{row}/{column}" for row in (first, second) for column in pair]
        a, b, x, y = (interval_of(place, cells[place]) for place in places)
        if a.middle > b.middle:
            higher, lower = (cells[place].printed for place in places[2:])
            yield _Number(pair[0], x, higher), _Number(pair[1], y, lower)


_KINDS: dict[str, Callable[[_Compared], Pairs]] = {
    "largest": lambda compared: ((row, other) for row in compared.rows for other in compared.others),
    "smallest": lambda compared: ((other, row) for row in compared.rows for other in compared.others),
    "second": _second,
    "not largest": lambda compared: ((max(compared.others, key=_middle), row) for row in compared.rows),
    "above": _all_above,
    "one above": _one_above,
    "rising": lambda compared: ((later, earlier) for earlier, later in pairwise(compared.rows)),
    "falling": lambda compared: pairwise(compared.rows),
    "positive": lambda compared: ((row, ZERO) for row in compared.rows),
    "negative": lambda compared: ((ZERO, row) for row in compared.rows),
    "narrower": _narrower,
}
