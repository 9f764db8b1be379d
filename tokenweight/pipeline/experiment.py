"""An experiment: rows x benchmarks with labels, columns, baseline, findings and its place in the paper, all as data.

The paper's tables and figures, sweeps, evaluations of other models and a user's YAML are each one of these, resolved at a
scale's lengths: nothing here calls anything.
"""

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, PositiveInt

from tokenweight.pipeline.measures import Difference, Measure
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.options import MOST_SEEDS


class Benchmarks(dict[str, Any]):
    """Benchmarks by name; the room `evaluation` fills it. FAMILY:TASK is what the entry FAMILY makes of a task."""

    def __missing__(self, name: str) -> Any:
        family, _, task = name.partition(":")
        if not task or family not in self:
            raise KeyError(name)
        return self[family].member(task)


BENCHMARKS = Benchmarks()
Extreme = Literal["largest", "smallest"]


class Lengths(Frozen):
    """The lengths of a run, in tokens and ascending, that columns and labels depend on."""

    ruler: tuple[PositiveInt, ...] = Field(min_length=1)  # the first is the base's context
    perplexity: tuple[PositiveInt, ...] = ()
    planted: tuple[PositiveInt, ...] = ()  # recall by distance: the farthest of each bin
    longbench_split: PositiveInt = 8192
    longbench_unit: Literal["tokens", "words"] = "tokens"


PAPER_LENGTHS = Lengths(ruler=(8192, 16_384, 24_576, 32_768))


class Labelled:
    """What has two labels, and may have another in the paper: a row, a column."""

    if TYPE_CHECKING:
        group: str
        label: str
        paper_label: str | None

    @property
    def name(self) -> str:
        """Both as one: "Frozen Sparse", "Uniform", "RULER 8k"."""
        return " ".join(part for part in (self.group, self.label) if part not in ("", "-"))

    @property
    def has_paper_label(self) -> bool:
        return self.paper_label not in (None, "", self.label)


class Row(Frozen, Labelled):
    """One row, of one recipe; {short} and {long} in a label become the first and last RULER length, such as 8k and 32k."""

    key: str  # the key in the manifest, and in the paper's data
    label: str
    recipe: str
    group: str = ""
    rule_below: Literal["full", "partial"] | None = None  # the line that the paper draws below the row
    fills: tuple[str, ...] | None = None  # columns (by paper name) that the paper fills; None: all
    reference: str | None = None  # row that difference columns are taken against
    shown: bool = True  # False: only there to be referred to
    unit: str | None = None  # the one unit that the row shows; None: all of its recipe's
    paper_label: str = ""  # at the paper's lengths


class Column(Frozen, Labelled):
    """One column; `paper` is its name in the paper's data, where it has a counterpart there."""

    key: str
    label: str
    measure: Annotated[Measure, Field(discriminator="kind")]
    paper: str | None = None
    group: str = ""
    decimals: int = 2
    shown: bool = True  # False: only there to be computed with
    paper_label: str | None = None  # its heading in the paper, such as 8k where ours is 1k

    @property
    def difference_of(self) -> str | None:
        """Key of the column that a difference column belongs to."""
        return self.measure.column if isinstance(self.measure, Difference) else None


class Emphasis(Frozen):
    """Which cells stand out, by column; values in `set_apart` are italic and never considered."""

    bold: Extreme | None = None
    italic: Extreme | None = None
    underline_above_row: str | None = None  # larger than this row's value
    set_apart: tuple[tuple[str, str], ...] = ()  # (row, column by paper name)


class Finding(Frozen):
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


class Figure(Frozen):
    """The figure that an experiment is, by the name of what draws it."""

    kind: Literal["ablation", "pmi", "sweep"]
    values: dict[str, dict[str, Any]] = Field(default={})  # sweep: of each row's fields, by symbol
    columns: tuple[str, ...] = ()  # sweep: keys of those shown, a panel each


RowT = TypeVar("RowT")
ColumnT = TypeVar("ColumnT")


class Described(Frozen, Generic[RowT, ColumnT]):
    """What a table or figure says, in a file or resolved at a scale."""

    name: str  # e.g. table-3, also the table's name in the paper's data, and of files
    title: str = ""
    paper_place: str = ""  # e.g. "Table 3"; "" for what the paper does not have
    rows: tuple[RowT, ...] = Field(min_length=1)
    columns: tuple[ColumnT, ...] = ()
    stub: tuple[str, ...] = ("Model",)  # headings of the label columns
    emphasis: Emphasis = Emphasis()
    baseline: str | None = None  # row that the others are compared with; difference columns: with the row's reference
    divergences: tuple[str, ...] = ()  # from the paper, true at every scale
    # RULER's, and those of labels.
    paper_lengths_tokens: tuple[PositiveInt, ...] = Field(default=PAPER_LENGTHS.ruler, min_length=1)
    correlate: tuple[str, str] | None = None  # two columns whose correlation the caption gives
    correlations_printed: tuple[tuple[Literal["Pearson", "Spearman"], str], ...] = ()  # (name, as printed)
    seeds: int = Field(default=1, ge=1, le=MOST_SEEDS)  # runs of each recipe where the user says nothing
    findings: tuple[Finding, ...] = ()
    figure: Figure | None = None
    compares_corpora: bool = False  # whether one corpus in place of all would leave nothing to compare
    own_text: bool = False  # whether the user has to give a text; without it "paper" leaves it out


class Experiment(Described[Row, Column]):
    """A table or figure. A column that is a mean of other means comes after them."""

    same_questions: bool = True  # False: rows of a column may answer other samples, as models of other tokenizers do

    @property
    def benchmarks(self) -> frozenset[str]:
        """The benchmarks that the columns are measured on."""
        read = (getattr(column.measure, "benchmark", None) for column in self.columns)
        return frozenset(benchmark for benchmark in read if benchmark)
