"""How the paper's values derive from each other, what its sentences say of them, and what a check finds, as data.

`derivations.json` and `claims.json`; a place of a cell is `table/row/column`, as in `paper_cells()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tokenweight.pipeline.experiment import Frozen
from tokenweight.reports.model import Mark


class Derivation(Frozen):
    """A rule: the value at `cell` follows from `sources` by `kind`.

    Both may hold `{row}`, `{other}` and `{column}`; the rule is then one for each row (with its partner, where
    `rows` gives one) and column.
    """

    kind: str  # a key of intervals.py
    cell: str
    sources: tuple[str, ...]
    rows: dict[str, str] | tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    weights: tuple[int, ...] = ()  # of a weighted mean
    factor: str = "1"  # a fraction: from the sources' unit to the printed one
    dimension: int | None = None  # of the rotary embedding
    place: str  # where the paper says so
    reading: str = ""  # what the paper does not say and is read into it

    def each(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(cell, sources) of every row and column."""
        rows = self.rows if isinstance(self.rows, dict) else {row: row for row in self.rows}
        for row, other in (rows or {"": ""}).items():
            for column in self.columns or ("",):
                names = {"row": row, "other": other, "column": column}
                yield self.cell.format(**names), tuple(source.format(**names) for source in self.sources)


class Claim(Frozen):
    """A sentence of the paper as an order of cells; see claims.py for the kinds."""

    quote: str  # a few words
    place: str
    kind: str  # a key of claims.py
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    mean: bool = False  # of the columns, in place of each column alone
    than_table: str | None = None  # where the other rows stand, if not in `table`
    than_rows: tuple[str, ...] = ()
    reading: str  # what is compared
    remark: str = ""  # what it means where it does not hold


class ValueCheck(Frozen):
    """A printed value beside what its sources give.

    `low` to `high` is what the sources may give before any rounding; `recomputed` is what they give as printed.
    """

    kind: str
    cell: str
    place: str
    reading: str
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


class ClaimCheck(Frozen):
    """A sentence beside the cells it speaks of."""

    quote: str
    place: str
    kind: str
    reading: str
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    @property
    def exceptions(self) -> tuple[Comparison, ...]:
        """Comparisons that do not hold."""
        return tuple(comparison for comparison in self.comparisons if comparison.outcome != "holds")

    @property
    def holds(self) -> bool:
        """Whether all comparisons do."""
        return not self.exceptions


class Audit(Frozen):
    """All checks. `version` counts changes of this structure."""

    version: Literal[1] = 1
    values: tuple[ValueCheck, ...]
    emphasis: tuple[EmphasisCheck, ...]
    claims: tuple[ClaimCheck, ...]
    relations: tuple[str, ...]
    unchecked: tuple[str, ...]


@cache
def derivations() -> tuple[Derivation, ...]:
    """All rules of derivation."""
    return tuple(Derivation.model_validate(rule) for rule in _read("derivations.json")["rules"])


@cache
def derivation_remarks() -> dict[str, str]:
    """A word on each value that does not follow, by its cell."""
    remarks: dict[str, str] = _read("derivations.json")["remarks"]
    return remarks


@cache
def claims() -> tuple[Claim, ...]:
    """All sentences that can be checked from cells."""
    return tuple(Claim.model_validate(claim) for claim in _read("claims.json")["claims"])


@cache
def unchecked() -> tuple[str, ...]:
    """What cannot be recomputed from what is printed, and why."""
    return tuple(_read("claims.json")["unchecked"])


def _read(name: str) -> Any:
    return json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
