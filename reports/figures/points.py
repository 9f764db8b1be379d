"""What a figure plots of a report's cells: ours with intervals, the paper's beside them, and what is left out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tokenweight.reports.figures.style import Drawing, footnote
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    wanted, kept = set(columns), {row.key for row in report.rows} if rows is None else set(rows)
    made = []
    for row, column, cell in report.places:
        if column.key not in wanted or row.key not in kept:
            continue
        if cell.status == "complete" and cell.value is not None:
            made.append(Point(row.key, column.key, "this run", cell.value, cell.ci_low, cell.ci_high, cell.n))
        if cell.paper is not None and cell.paper.value is not None:
            made.append(Point(row.key, column.key, "paper", cell.paper.value))
    return made


def left_out(report: Report, columns: Iterable[str]) -> str:
    """On the cells that have no value: "Left out: RULER of λ = 0.25 (partial)."; "" where there is none."""
    wanted = set(columns)
    by_cell: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # status and columns (none: all of them) -> rows
    for row in report.rows:
        cells = [
            (column.name, cell.status)
            for column, cell in zip(report.columns, row.cells, strict=True)
            if column.key in wanted and cell.status != "not_in_paper"
        ]
        for status in ("missing", "partial", "refused"):
            labels = tuple(label for label, found in cells if found == status)
            if labels:
                everything = len(labels) == len(cells)
                by_cell.setdefault((status, () if everything else labels), []).append(row.name)
    told = []
    for (status, labels), rows in by_cell.items():
        which = "all rows" if len(rows) == len(report.rows) else ", ".join(rows)
        told.append(f"{', '.join(labels)} of {which} ({status})" if labels else f"{which} ({status})")
    return f"Left out: {'; '.join(told)}." if told else ""


def drawing(figure: Figure, report: Report, columns: Iterable[str], plotted: Sequence[Point], about: str) -> Drawing:
    """The figure with its lines below (what it is, what is left out), and its points with labels as CSV."""
    ours = any(point.source == "this run" for point in plotted)
    nothing = "" if ours else "Nothing of this run is complete."
    footnote(figure, [about, nothing, left_out(report, columns)])
    rows = {row.key: row.name for row in report.rows}
    names = {column.key: column.name for column in report.columns}
    header = ("row", "row_label", "column", "column_label", "source", "value", "ci_low", "ci_high", "n")
    lines = ((p.row, rows[p.row], p.column, names[p.column], p.source, p.value, p.low, p.high, p.n) for p in plotted)
    return Drawing(figure, csv_text(header, lines))


def curve(axes: Axes, found: Mapping[Any, Point], places: Mapping[Any, float], **looks: Any) -> Any:
    """A line through points in the order of `places` (point's key -> x), which one that lacks interrupts."""
    (line,) = axes.plot(list(places.values()), [found[k].value if k in found else math.nan for k in places], **looks)
    return line


def whisker(axes: Axes, point: Point | None, place: float, colour: str, *, upright: bool = True) -> None:
    """A point's 95 % interval at its place on the other axis, where it has one."""
    if point is not None and point.low is not None and point.high is not None:
        draw = axes.vlines if upright else axes.hlines
        draw(place, point.low, point.high, color=colour, linewidth=0.9)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV with a header; None is an empty field, numbers keep all their digits."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return table.getvalue()
