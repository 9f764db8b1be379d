"""How the paper's values derive from each other, what its sentences say of them, and what a check finds.

The first two are data, in `rules.json`; a place of a cell is `table/row/column`, as in `paper_cells()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from tokenweight.pipeline.experiment import Frozen
from tokenweight.reports.model import Mark


class Statement(Frozen):
    """What the paper says, where, and how it is checked."""

    kind: str  # a formula of numbers.py, or a case of claims.py
    place: str
    reading: str = ""  # what the paper does not say and is read into it


class Derivation(Statement):
    """A rule: the value at `cell` follows from `sources` by `kind`.

    Both may hold `{row}`, `{other}` and `{column}`; the rule is then one for each row (with its partner, where
    `rows` gives one) and column.
    """

    cell: str
    sources: tuple[str, ...]
    rows: dict[str, str] | tuple[str, ...] = ()
    columns: tuple[str, ...] = ("",)
    weights: tuple[int, ...] = ()  # of a weighted mean
    factor: str = "1"  # a fraction: from the sources' unit to the printed one
    dimension: int = 0  # of the rotary embedding

    def each(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(cell, sources) of every row and column."""
        rows = self.rows if isinstance(self.rows, dict) else {row: row for row in self.rows}
        for row, other in (rows or {"": ""}).items():
            for column in self.columns:
                names = {"row": row, "other": other, "column": column}
                yield self.cell.format(**names), tuple(source.format(**names) for source in self.sources)


class Claim(Statement):
    """A sentence as an order of cells."""

    quote: str  # a few words
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    mean: bool = False  # of the columns, in place of each column alone
    than_table: str | None = None  # where the other rows stand, if not in `table`
    than_rows: tuple[str, ...] = ()
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


class ValueCheck(Statement):
    """A printed value beside what its sources give.

    `low` to `high` is what the sources may give before any rounding; `recomputed` is what they give as printed.
    """

    cell: str
    sources: dict[str, str]  # printed, by cell
    printed: str
    recomputed: float
    low: float
    high: float
    follows: bool
    follows_with: dict[str, str] = Field(
        default_factory=dict
    )  # sources that the paper prints twice, with the other value
    remark: str = ""


class EmphasisCheck(Frozen):
    """The marks of a cell beside those that the caption's rule gives."""

    cell: str
    printed: tuple[Mark, ...]
    recomputed: tuple[Mark, ...]

    @property
    def follows(self) -> bool:
        """Whether both are the same."""
        return set(self.printed) == set(self.recomputed)


class Comparison(Frozen):
    """One order of two numbers that a sentence says: `text` names both."""

    text: str
    outcome: Literal["holds", "fails", "within rounding"]


class ClaimCheck(Statement):
    """A sentence beside the cells it speaks of."""

    quote: str
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    @property
    def exceptions(self) -> tuple[Comparison, ...]:
        """Comparisons that do not hold; of a sentence that holds there are none."""
        return tuple(comparison for comparison in self.comparisons if comparison.outcome != "holds")


class Audit(Frozen):
    """All checks. `version` counts changes of this structure."""

    version: Literal[1] = 1
    values: tuple[ValueCheck, ...]
    emphasis: tuple[EmphasisCheck, ...]
    claims: tuple[ClaimCheck, ...]
    relations: tuple[str, ...]
    unchecked: tuple[str, ...]
