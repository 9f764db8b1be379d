"""How the paper's values derive from each other, and what its sentences say of them, as data.

`derivations.json` and `claims.json`; a place of a cell is `table/row/column`, as in `paper_cells()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.pipeline.experiment import Frozen


class Derivation(Frozen):
    """A rule: the value at `cell` follows from `sources` by `kind`.

    Both may hold `{row}`, `{other}` and `{column}`; the rule is then one for each row (with its partner, where
    `rows` gives one) and column.
    """

    kind: str  # a key of formulas.py
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
