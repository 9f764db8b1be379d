"""What a target is: rows bound to recipes, columns bound to measures, and a rule of emphasis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tokenweight.reports.figures.style import Draw
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.measures import Measure


@dataclass(frozen=True)
class Row:
    """One row; `{short}` and `{long}` in a label become the first and last RULER length, such as 8k and 32k."""

    key: str  # the key in the manifest, and in the paper's data
    label: str
    recipe: str
    group: str = ""
    rule_below: Literal["full", "partial"] | None = None  # the line that the paper draws below the row
    fills: frozenset[str] | None = None  # columns (by paper name) that the paper fills; None: all
    reference: str | None = None  # row that difference columns are taken against
    shown: bool = True  # False: only there to be referred to
    unit: str | None = None  # the one unit that the row shows; None: all of its recipe's


@dataclass(frozen=True)
class Column:
    """One column; `paper` is its name in the paper's data, where it has a counterpart there."""

    key: str
    label: str
    measure: Measure
    paper: str | None
    group: str = ""
    decimals: int = 2
    shown: bool = True  # False: only there to be computed with


@dataclass(frozen=True)
class Emphasis:
    """Which cells stand out, by column; values in `set_apart` are italic and never considered."""

    bold: Literal["largest", "smallest"] | None = None
    italic: Literal["largest", "smallest"] | None = None
    underline_above_row: str | None = None  # larger than this row's value
    set_apart: frozenset[tuple[str, str]] = frozenset()  # (row, column by paper name)


@dataclass(frozen=True)
class Finding:
    """A claim of the paper as an order of two rows in one column: `higher` above `lower`.

    `column` is the column's name in the paper's data, or its key where it has none. With `within` the claim is that they
    are alike: less than that apart.
    """

    claim: str
    place: str  # in the paper
    column: str
    higher: str
    lower: str
    within: float | None = None


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper.

    `columns` depends on the run's lengths, which only the manifest knows. A column that is a mean of other
    means comes after them.
    """

    name: str  # e.g. table-3, also the table's name in the paper's data
    title: str
    paper_place: str  # e.g. "Table 3"; "" for what the paper does not have
    rows: tuple[Row, ...]
    columns: Callable[[Manifest], tuple[Column, ...]]
    stub: tuple[str, ...] = ("Model",)
    emphasis: Emphasis = Emphasis()
    baseline: str | None = None  # row that the others are compared with; difference columns: with the row's reference
    divergences: tuple[str, ...] = ()  # from the paper, true at every scale
    paper_lengths_tokens: tuple[int, ...] = (8192, 16384, 24576, 32768)  # RULER's, and the labels' short and long
    correlate: tuple[str, str] | None = None  # two columns whose correlation the caption gives
    correlations_printed: tuple[tuple[str, str], ...] = ()  # (name, as printed)
    seeds: int = 1  # runs of each recipe where the user says nothing
    findings: tuple[Finding, ...] = ()
    command: str | None = None  # that runs it, where that is not `tokenweight reproduce`
    about: str | None = None  # first note, in place of what is said of the scale
    figure: Draw | None = None  # draws it where the target is a figure; matplotlib is loaded there
    compares_corpora: bool = False  # whether one corpus in place of all would leave nothing to compare
    own_text: bool = False  # whether the user has to give a text; without it "paper" goes on
    same_questions: bool = True  # False: rows of a column may answer other samples, as models of other tokenizers do

    @property
    def recipes(self) -> tuple[str, ...]:
        """Names of all recipes that the target needs, each once."""
        return tuple(dict.fromkeys(row.recipe for row in self.rows))
