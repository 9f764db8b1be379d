"""A finished report: every cell with its value, interval, n, status, emphasis, and the paper's number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from tokenweight.pipeline.experiment import Labelled
from tokenweight.recipes.frozen import Frozen

Status = Literal["complete", "partial", "missing", "refused", "not_in_paper", "left_out"]  # left_out: by the style
Style = Literal["ours", "paper", "both"]
Mark = Literal["bold", "italic", "underline"]


class PaperNumber(Frozen):
    """A cell as the paper prints it; `value` is None for what is not a plain number ("-", "<0.01")."""

    printed: str
    value: float | None
    decimals: int
    emphasis: tuple[Mark, ...] = ()


class Inference(Frozen):
    """What samples and seeds say of a value, or of a difference, beyond themselves; no test (`p`) where `reason` says why."""

    ci_low: float | None = None  # of the 95 % interval
    ci_high: float | None = None
    p: float | None = None  # two-sided that there is no difference; of rows that are alike, that they are farther apart
    p_corrected: float | None = None  # Holm's, over all tests of the table, or over its findings
    test: str | None = None
    n: int = 0  # pairs of samples
    reason: str | None = None


class CellDifference(Inference):
    """A cell less its baseline on the same samples."""

    baseline: str  # key of the baseline's row, which the table need not show
    baseline_label: str  # both labels of that row
    value: float | None = None


class Cell(Frozen):
    """One number, or the reason why there is none. Only a complete cell has a value."""

    status: Status
    value: float | None = None
    ci_low: float | None = None  # 95 % interval; None where a task has one sample, or nothing varies
    ci_high: float | None = None
    spread: float | None = None  # standard deviation over the seeds' values, whose mean `value` is; None: one seed
    by_seed: tuple[float | None, ...] = ()  # the values of each seed, ascending; empty where there is one
    n: int = 0  # samples that the value rests on, or that there are so far
    n_expected: int | None = None
    emphasis: tuple[Mark, ...] = ()
    marks: tuple[int, ...] = ()  # numbers of the notes that belong to this cell
    difference: CellDifference | None = None  # to the target's baseline; of a difference column, to the row's reference
    paper: PaperNumber | None = None
    less_paper: float | None = None  # value less the paper's, both as printed
    addresses: tuple[str, ...] = ()  # artifacts below the store that the value was computed from


class ReportColumn(Frozen, Labelled):
    key: str
    label: str
    group: str = ""
    decimals: int
    signed: bool = False  # a difference: printed with its sign
    difference_of: str | None = None  # key of the column that a difference column belongs to
    paper_column: str | None = None
    paper_label: str | None = None  # its heading in the paper, such as 8k where ours is 1k


class ReportRow(Frozen, Labelled):
    key: str
    group: str = ""
    label: str
    paper_label: str
    recipe: str = ""
    rule_below: Literal["full", "partial"] | None = None
    artifacts: tuple[str | None, ...] = ()  # addresses of its trained models, by seed
    cells: tuple[Cell, ...]  # in the order of Report.columns


class Note(Frozen):
    """A line below the table; `mark` is the number that cells carry, None where it concerns the whole table."""

    mark: int | None
    text: str


def notes(of_table: Iterable[str], of_cells: Iterable[str]) -> tuple[Note, ...]:
    """Notes in the order of printing: on the whole table, then those that cells refer to by number."""
    numbered = (Note(mark=mark, text=text) for mark, text in enumerate(of_cells, start=1))
    return (*(Note(mark=None, text=text) for text in of_table), *numbered)


class Statistic(Frozen):
    """A number that the paper gives in a caption, such as a correlation of two columns."""

    name: str
    value: float | None
    n: int
    paper: str | None = None  # as printed


class FindingResult(Inference):
    """Whether something that the paper reports shows in this run: in how many seeds, and by how much on average."""

    claim: str
    place: str  # in the paper
    compared: str  # which cells, e.g. "NLL short context: PPMI > Uniform"
    difference: float | None  # of the means over seeds; None where a seed lacks a value
    is_measurable: bool = True  # False: at chance or at the floor in every row
    decimals: int
    seeds_holding: int
    seeds: int  # of which both values are there


class Report(Frozen):
    """A target filled from records. `version` counts changes of this structure; keys may be added without one."""

    version: Literal[3] = 3
    style: Style = "both"  # whose numbers it holds
    target: str
    title: str
    paper_place: str
    scale: str
    stub: tuple[str, ...]  # headings of the label columns: one, or two where rows have groups
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    seeds: int = 1
    baseline: str | None = None  # label of the row that the others are compared with
    emphasis: str = ""  # what bold, italic and underlined numbers are
    notes: tuple[Note, ...]
    statistics: tuple[Statistic, ...] = ()
    findings: tuple[FindingResult, ...] = ()

    @property
    def heading(self) -> str:
        """ "Table 3: Main results", or the title alone of what the paper does not have."""
        return ": ".join(filter(None, (self.paper_place, self.title)))

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for row in self.rows for cell in row.cells)

    @property
    def absent(self) -> list[Cell]:
        """Cells that should have a value and have none."""
        return [cell for cell in self.cells if cell.status in ("partial", "missing", "refused")]

    @property
    def places(self) -> Iterator[tuple[ReportRow, ReportColumn, Cell]]:
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                yield row, column, cell

    @property
    def has_paper(self) -> bool:
        return any(cell.paper for cell in self.cells)

    @property
    def compared(self) -> tuple[ReportRow, ...]:
        """The rows of which a cell was compared with a baseline."""
        return tuple(row for row in self.rows if any(cell.difference for cell in row.cells))

    @property
    def comparisons(self) -> int:
        """Tests against a baseline, over which p-values are corrected."""
        return sum(cell.difference is not None and cell.difference.p is not None for cell in self.cells)

    @property
    def rows_of_paper(self) -> tuple[ReportRow, ...]:
        """The rows that the paper has too, with its rules between them."""
        rows: list[ReportRow] = []
        for row in self.rows:
            if any(cell.paper for cell in row.cells):
                rows.append(row)
            elif rows and row.rule_below:  # a row that the paper lacks may be the last above a rule
                rows[-1] = rows[-1].model_copy(update={"rule_below": row.rule_below})
        return tuple(rows)

    def cell(self, row: str, column: str) -> Cell:
        """The cell at two keys; KeyError where the table has no such row or column."""
        return {(r.key, c.key): cell for r, c, cell in self.places}[row, column]
