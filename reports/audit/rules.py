"""How the paper's values derive from each other, what its sentences say of them, and what a check finds.

The first two are data, in `rules.json`; a place of a cell is `table/row/column`, as in `paper_cells()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from tokenweight.recipes.frozen import Frozen
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import place_name

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
    weights: tuple[int, ...] = ()  # of a weighted mean
    factor: str = "1"  # a fraction: from the sources' unit to the printed one
    dimension: int = 0  # of the rotary embedding

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
    """The content of rules.json."""

    derivations: tuple[Derivation, ...]
    remarks: dict[str, str]  # a word on each value that does not follow, by its cell
    claims: tuple[Claim, ...]
    unchecked: tuple[str, ...]  # what cannot be recomputed from what is printed, and why


@cache
def rules() -> Rules:
    """All that is checked."""
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
        """Its row in a table: of a sentence place, words, how it is read, exceptions, what they mean; else the cell."""
        if self.of == "sentence":
            return self.place, f"“{self.about}”", self.reading, self.recomputed, self.meaning
        row = (place_name(self.about), self.printed, self.recomputed)
        return row if self.of == "mark" else (*row, self.meaning)


class Audit(Frozen):
    """All checks. `version` counts changes of this structure."""

    version: Literal[2] = 2
    checks: tuple[Check, ...]
    relations: tuple[str, ...]
    unchecked: tuple[str, ...]
