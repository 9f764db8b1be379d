"""Sentences of the paper as orders of numbers: each comparison holds or fails only where rounding cannot turn it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations, product
from statistics import mean
from typing import NamedTuple

from tokenweight.reports.audit.rules import SENTENCE, Cells, Check, Claim
from tokenweight.reports.audit.values import Interval, interval_of
from tokenweight.reports.paper.numbers import place_name


class _Number(NamedTuple):
    name: str
    interval: Interval
    text: str  # as printed, or as computed from what is printed

    @property
    def middle(self) -> Fraction:
        return self.interval.middle

    def __str__(self) -> str:
        return f"{self.name} {self.text}".strip()


def check_claim(claim: Claim, cells: Cells) -> Check:
    """Compare what a sentence compares; the remark belongs to a sentence that does not hold."""
    comparisons = list(_same_order(claim, cells) if claim.same_order else _orders(claim, cells))
    exceptions = []
    for what, higher, lower in comparisons:
        if higher.interval.low < lower.interval.high:
            text, fails = f"{higher} > {lower} in {what}", higher.interval.high <= lower.interval.low
            exceptions.append(f"not {text}" if fails else f"{text} is within rounding")
    named = (row.split("/")[0] for order in claim.orders for group in order for row in group.split() if "/" in row)
    return Check(
        kind=SENTENCE,
        about=claim.quote,
        tables=tuple(dict.fromkeys((claim.table, *named))),
        place=claim.place,
        reading=claim.reading,
        recomputed=f"{len(exceptions)} of {len(comparisons)}: {'; '.join(exceptions)}",
        follows=not exceptions,
        meaning=claim.remark if exceptions else "",
    )


def _orders(claim: Claim, cells: Cells) -> Iterator[tuple[str, _Number, _Number]]:
    """(what is compared, higher, lower): rows of neighbouring groups, in each column or in their mean."""
    alone = {column: (column,) for column in claim.columns}
    whats = {f"mean of {', '.join(claim.columns)}": claim.columns} if claim.mean else alone
    for (what, columns), order in product(whats.items(), claim.orders):
        named = {row for group in order for row in group.split()}
        others = [row for row in _rows(claim.table, cells) if row not in named]
        groups = [_group(group.split(), others, claim.table, columns, cells) for group in order]
        for pair in pairwise(groups):
            yield from ((what, *numbers) for numbers in product(*pair))


def _rows(table: str, cells: Cells) -> list[str]:
    return list(dict.fromkeys(place.split("/")[1] for place in cells if place.startswith(f"{table}/")))


def _group(words: list[str], others: list[str], table: str, columns: tuple[str, ...], cells: Cells) -> list[_Number]:
    """The numbers of a group: of each row the cell, or the mean of several, as long as none of them is empty."""
    numbers = []
    for row in (row for word in words for row in (others if word == "*" else [word])):
        places = [f"{row if '/' in row else f'{table}/{row}'}/{column}" for column in columns]
        if row == "0":
            numbers.append(_Number("", Interval(Fraction(0), Fraction(0)), "0"))
        elif row not in ("max", "range") and all(cells[place].printed != "-" for place in places):
            interval = Interval(*map(mean, zip(*(interval_of(place, cells[place]) for place in places), strict=True)))
            text = cells[places[0]].printed if len(places) == 1 else f"{float(interval.middle):.3f}"
            numbers.append(_Number(place_name(row) if "/" in row else row, interval, text))
    if words[0] == "max":
        return [max(numbers, key=lambda number: number.middle)]
    if words[0] == "range":
        lowest, *_, highest = (number.interval for number in sorted(numbers, key=lambda number: number.middle))
        spread = Interval(highest.low - lowest.high, highest.high - lowest.low)
        where = words[1].split("/")[0] if "/" in words[1] else table
        return [_Number(f"range of {place_name(where)}", spread, f"{float(spread.middle):.2f}")]
    return numbers


def _same_order(claim: Claim, cells: Cells) -> Iterator[tuple[str, _Number, _Number]]:
    """Columns in which the first row is larger than in others are larger in the second too."""
    first, second = claim.same_order or ("", "")
    for pair in permutations(claim.columns, 2):
        a, b = (interval_of(first, cells[f"{claim.table}/{first}/{column}"]).middle for column in pair)
        if a > b:
            places = {column: cells[f"{claim.table}/{second}/{column}"] for column in pair}
            higher, lower = (_Number(name, interval_of(name, cell), cell.printed) for name, cell in places.items())
            yield second, higher, lower
