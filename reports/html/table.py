"""A report's table as the template draws it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from tokenweight.reports.display import (
    difference_text,
    interval_text,
    is_significant,
    less_paper_text,
    paper_beside,
    value_text,
)
from tokenweight.reports.html.data import EMPTY
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow


@dataclass(frozen=True)
class CellView:
    """One cell. `number`: of the cell in the page's data; None: it opens nothing."""

    number: int | None
    sort: str  # "" sorts last
    value: str
    interval: str
    difference: str
    arrow: str  # direction of a significant difference
    paper: str
    cell: Cell


def column_groups(report: Report) -> list[tuple[str, int]]:
    """(name, columns) of the headings above the headings; [] where no column has one."""
    groups = [(name, len(list(members))) for name, members in groupby(report.columns, key=lambda column: column.group)]
    return groups if any(name for name, _ in groups) else []


def row_views(report: Report, numbers: Iterator[int]) -> list[tuple[ReportRow, list[CellView]]]:
    """All rows with their cells; `numbers` continue through the tables of a page, in the order of `opening_cells`."""
    return [
        (row, [_view(cell, column, numbers) for cell, column in zip(row.cells, report.columns, strict=True)])
        for row in report.rows
    ]


def _view(cell: Cell, column: ReportColumn, numbers: Iterator[int]) -> CellView:
    difference = cell.difference.value if cell.difference else None
    return CellView(
        number=None if cell.status in EMPTY else next(numbers),
        sort="" if cell.value is None else repr(cell.value),
        value=value_text(cell, column),
        interval="" if cell.ci_low is None else interval_text(cell, column),
        difference="" if difference is None else _lines(difference_text(cell, column)),
        arrow="" if not is_significant(cell) or not difference else "↑" if difference > 0 else "↓",
        paper=_paper(cell, column),
        cell=cell,
    )


def _lines(difference: str) -> str:
    """A difference, its interval and p on a line each."""
    return "Δ " + difference.replace(" [", "\n[").replace(", p ", "\np ").replace(" (not", "\n(not")


def _paper(cell: Cell, column: ReportColumn) -> str:
    """The paper's number, then ours less that."""
    less = "" if cell.less_paper is None else less_paper_text(cell, column)
    return " ".join(filter(None, (paper_beside(cell), less)))
