"""Figures 1, 2, 4 and 5: the difference to the uniform baseline by lambda or kappa, a panel for each benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tokenweight.reports.figures.points import Point, left_out, nothing_of_this_run, points, points_csv
from tokenweight.reports.figures.style import BASELINE, OURS, PAPER, TEXT_INCHES, Drawing, footnote, plain
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASELINE_ROW = "uniform"  # the dotted line, as in the paper, and no point of the curve


def parameter_value(row: str) -> float:
    """lambda or kappa of a row by its key: "lambda-0.25" is 0.25."""
    return float(row.rpartition("-")[2])


def draw(report: Report, _manifest: Manifest, _store_root: Path) -> Drawing:
    """Curves of this run with 95 % intervals and the paper's; a value that is not complete interrupts the curve."""
    from matplotlib.figure import Figure

    columns = {column.key: column for column in report.columns}
    rows = [row.key for row in report.rows if row.key != BASELINE_ROW]
    plotted = points(report, columns, rows)
    figure = Figure(figsize=(TEXT_INCHES, 2.15))
    panels = figure.subplots(1, len(columns), sharey=True)
    for axes, (key, column) in zip(panels, columns.items(), strict=True):
        axes.axhline(0, label="uniform baseline", **BASELINE)
        for source, looks, label in (
            ("paper", PAPER, f"the paper, {report.paper_place}"),
            ("this run", OURS, "this run"),
        ):
            found = {p.row: p for p in plotted if p.column == key and p.source == source}
            if not found:
                continue
            x = [parameter_value(row) for row in rows]
            axes.plot(x, [found[row].value if row in found else math.nan for row in rows], label=label, **looks)
            for row, point in found.items():
                if point.low is not None and point.high is not None:
                    axes.vlines(parameter_value(row), point.low, point.high, color=looks["color"], linewidth=0.9)
        _dress(axes, plain(column.label), report.stub[0], [parameter_value(row) for row in rows])
    panels[0].set_ylabel("difference to uniform (points)")
    legend = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values())[::-1], list(legend)[::-1], loc="outside upper center", ncols=3)
    footnote(figure, _lines(report, columns, plotted))
    return Drawing(figure, points_csv(report, plotted))


def _dress(axes: Axes, title: str, symbol: str, ticks: list[float]) -> None:
    axes.set_title(title)
    axes.set_xlabel(symbol)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.margins(x=0.08)


def _lines(report: Report, columns: Iterable[str], plotted: list[Point]) -> list[str]:
    return [
        f"{report.title}. Scale {report.scale}. Bars: 95 % intervals, paired bootstrap over samples.",
        nothing_of_this_run(plotted),
        left_out(report, columns),
    ]
