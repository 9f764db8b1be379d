"""Derived values and sentences of the paper, recomputed over what printed numbers may have been before they were rounded.

That is in exact fractions. A comparison holds or fails only where rounding cannot turn it. How values derive from each other
and what sentences say of them is data, in `rules.json`; a place of a cell is `table/row/column`, as in `paper_cells()`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product
from math import prod
from operator import mul
from pathlib import Path
from statistics import mean
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from tokenweight.recipes.frozen import Frozen
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import place_name
from tokenweight.reports.statistics import correlation

Cells = Mapping[str, PaperNumber]


class Derivation(Frozen):
    """A rule: the value at `cell` follows from `sources` by `kind`, a formula of checks.py.

    Both may hold `{row}`, `{other}` and `{column}`; the rule is then one for each row (with its partner, where
    `rows` gives one) and column.
    """

    kind: str
    place: str
    reading: str = ""  # what the paper does not say and is read into it
    cell: str
    sources: tuple[str, ...]
    rows: dict[str, str] | tuple[str, ...] = ("",)
    columns: tuple[str, ...] = ("",)
    constants: tuple[int, ...] = ()  # terms behind the sources: weights of a mean, the dimension of a rotary embedding
    factor: str = "1"  # a fraction: from the sources' unit to the printed one

    def each(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(cell, sources) of every row and column."""
        rows = self.rows if isinstance(self.rows, dict) else {row: row for row in self.rows}
        for row, other in rows.items():
            for column in self.columns:
                names = {"row": row, "other": other, "column": column}
                yield self.cell.format(**names), tuple(source.format(**names) for source in self.sources)


class Claim(Frozen):
    """A sentence as orders of cells, in each of the columns.

    An order is a chain of groups of rows, separated by blanks: each row of a group is above all rows of the next.
    `table/row` is a row of another table, `*` all rows of the table that the order does not name, `0` the number; the
    words `max` and `range` before a group make it the largest of its rows, or the range that they cover.
    """

    quote: str  # a few words
    place: str
    reading: str
    table: str
    orders: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...]
    mean: bool = False  # of the columns, in place of each column alone
    same_order: tuple[str, str] | None = None  # columns are in the second row in the order that they have in the first
    remark: str = ""  # what it means where it does not hold


class Rules(Frozen):
    derivations: tuple[Derivation, ...]
    remarks: dict[str, str]  # a word on each value that does not follow, by its cell
    claims: tuple[Claim, ...]
    unchecked: tuple[str, ...]  # what cannot be recomputed from what is printed, and why


@cache
def rules() -> Rules:
    return Rules.model_validate_json((Path(__file__).parent / "rules.json").read_bytes())


class Check(Frozen):
    """What the paper prints or says, beside what its other numbers give, in words.

    Of a value that is what its sources give as printed, and in brackets what they may give before any rounding; of
    marks those of the caption's rule; of a sentence the comparisons that do not hold.
    """

    of: Literal["value", "mark", "sentence"]
    kind: str  # a formula, for one
    about: str  # the cell, or the words of a sentence
    tables: tuple[str, ...]
    place: str = ""  # in the paper
    reading: str = ""
    printed: str = ""
    recomputed: str
    follows: bool
    meaning: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Its row in a table, which shows as many as it has headings: of a sentence place, words, how it is read, exceptions,
        what they mean; else the cell."""
        if self.of == "sentence":
            return self.place, f"“{self.about}”", self.reading, self.recomputed, self.meaning
        return place_name(self.about), self.printed, self.recomputed, self.meaning


class Audit(Frozen):
    """All checks. `version` counts changes of this structure."""

    version: Literal[3] = 3
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]


_REPEATED = "repeated value"


class Interval(NamedTuple):
    """All values from `low` to `high`, both included; a rounded value may lie on either border."""

    low: Fraction
    high: Fraction

    @property
    def middle(self) -> Fraction:
        """The printed number itself, where that is what the interval is of."""
        return (self.low + self.high) / 2

    def meets(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high


def interval_of(place: str, number: PaperNumber) -> Interval:
    """A printed number before it was rounded: "0.20" is 0.195 to 0.205, "<0.01" is 0 to 0.01; `counts` are exact.

    ValueError for what is no number.
    """
    text = number.printed
    if text.startswith("<"):
        return Interval(Fraction(0), Fraction(text[1:]))
    value = Fraction(text)
    half = 0 if place.startswith("counts/") else Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
    return Interval(value - half, value + half)


def check_values(cells: Cells) -> Iterator[Check]:
    """Each derived value; one that does not follow is tried again with its sources' other printed values."""
    derived = [
        (rule, cell, sources, _follows(rule, cell, sources, cells))
        for rule in rules().derivations
        for cell, sources in rule.each()
    ]
    twice: dict[str, str] = {}  # places whose value is printed elsewhere too, and differently there
    for rule, cell, (first, *_), holds in derived:
        if rule.kind == _REPEATED and not holds:
            twice |= {cell: first, first: cell}
    for rule, cell, sources, holds in derived:
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
            of="value",
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
    "mean": lambda *terms: mean(terms),
    "weighted mean": lambda *both: sum(map(mul, both, both[len(both) // 2 :])) / sum(both[len(both) // 2 :]),
    # NTK-aware: b f^(d / (d - 2)).
    "rotary base": lambda base, factor, d: Fraction(base * factor ** (d / (d - 2))),
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
    formula, factor = _FORMULAS[rule.kind], Fraction(rule.factor)
    values = [formula(*ends, *rule.constants) * factor for ends in product(*map(set, terms))]
    if rule.kind == "absolute difference" and terms[0].meets(terms[1]):
        values.append(Fraction(0))  # where the difference changes its sign
    return Interval(min(values), max(values))


def _correlation(kind: str, terms: Sequence[Interval]) -> Interval:
    """Of the first half of the terms with the second.

    The interval adds up the change by each term's own rounding: to first order, the most that all can do together.
    """
    values = np.array([float(term.middle) for term in terms])
    halves = np.diag([float(term.high - term.middle) for term in terms])
    shifted = (values, *(values + halves), *(values - halves))
    centre, *moved = (correlation(kind, pd.DataFrame(each.reshape(2, -1).T)) or 0.0 for each in shifted)
    slack = np.abs(np.array(moved) - centre).reshape(2, -1).max(axis=0).sum()
    return Interval(Fraction(centre - slack), Fraction(centre + slack))


# --- Sentences


class _Number(NamedTuple):
    name: str
    interval: Interval
    text: str  # as printed, or as computed from what is printed

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
        of="sentence",
        kind="sentence",
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
        in_table = dict.fromkeys(place.split("/")[1] for place in cells if place.startswith(f"{claim.table}/"))
        others = [row for row in in_table if row not in named]
        groups = [_group(group.split(), others, claim.table, columns, cells) for group in order]
        for pair in pairwise(groups):
            yield from ((what, *numbers) for numbers in product(*pair))


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
        return [max(numbers, key=lambda number: number.interval.middle)]
    if words[0] == "range":
        lowest, *_, highest = sorted((number.interval for number in numbers), key=lambda interval: interval.middle)
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
