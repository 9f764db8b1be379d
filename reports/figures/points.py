"""What a figure plots of a report's cells: ours with intervals, the paper's beside them, and what is left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tokenweight.reports.model import Report, ReportRow

Source = Literal["this run", "paper"]


@dataclass(frozen=True)
class Point:
    """A plotted value; the paper's has neither interval nor n."""

    row: str
    column: str
    source: Source
    value: float
    low: float | None = None  # 95 % interval
    high: float | None = None
    n: int | None = None


def points(report: Report, columns: Iterable[str], rows: Iterable[str] | None = None) -> list[Point]:
    """The complete cells of some columns (by key), and the paper's numbers; rows (by key): all unless given."""
    wanted, kept = set(columns), None if rows is None else set(rows)
    made = []
    for row in report.rows:
        if kept is not None and row.key not in kept:
            continue
        for column, cell in zip(report.columns, row.cells, strict=True):
            if column.key not in wanted:
                continue
            if cell.status == "complete" and cell.value is not None:
                made.append(Point(row.key, column.key, "this run", cell.value, cell.ci_low, cell.ci_high, cell.n))
            if cell.paper is not None and cell.paper.value is not None:
                made.append(Point(row.key, column.key, "paper", cell.paper.value))
    return made


def row_name(row: ReportRow) -> str:
    """Both labels of a row as one: "Frozen Sparse"."""
    return " ".join(part for part in (row.group, row.label) if part not in ("", "-"))


def left_out(report: Report, columns: Iterable[str]) -> str:
    """On the cells that have no value: "Left out: RULER of λ = 0.25 (partial)."; "" where there is none."""
    wanted = set(columns)
    by_cell: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # status and columns (none: all of them) -> rows
    for row in report.rows:
        cells = [
            (" ".join(filter(None, (column.group, column.label))), cell.status)
            for column, cell in zip(report.columns, row.cells, strict=True)
            if column.key in wanted and cell.status != "not_in_paper"
        ]
        for status in ("missing", "partial", "refused"):
            labels = tuple(label for label, found in cells if found == status)
            if labels:
                everything = len(labels) == len(cells)
                by_cell.setdefault((status, () if everything else labels), []).append(row_name(row))
    told = []
    for (status, labels), rows in by_cell.items():
        which = "all rows" if len(rows) == len(report.rows) else ", ".join(rows)
        told.append(f"{', '.join(labels)} of {which} ({status})" if labels else f"{which} ({status})")
    return f"Left out: {'; '.join(told)}." if told else ""


def nothing_of_this_run(plotted: Iterable[Point]) -> str:
    """A sentence where only the paper's numbers are plotted, else ""."""
    return "" if any(point.source == "this run" for point in plotted) else "Nothing of this run is complete."


def points_csv(report: Report, plotted: Sequence[Point]) -> str:
    """The points as CSV with the labels of their rows and columns."""
    rows = {row.key: row_name(row) for row in report.rows}
    columns = {column.key: " ".join(filter(None, (column.group, column.label))) for column in report.columns}
    return csv_text(
        ("row", "row_label", "column", "column_label", "source", "value", "ci_low", "ci_high", "n"),
        (
            (p.row, rows[p.row], p.column, columns[p.column], p.source, p.value, p.low, p.high, p.n)
            for p in plotted
        ),
    )  # fmt: skip


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV with a header; None is an empty field, numbers keep all their digits."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return table.getvalue()
