"""Figures 1, 2, 4 and 5: the difference to the uniform baseline by lambda or kappa, a panel for each benchmark."""

from __future__ import annotations

from pathlib import Path

from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.figures.points import curve, drawing, points, whisker
from tokenweight.reports.figures.style import BASELINE, OURS, PAPER, TEXT_INCHES, Drawing, plain
from tokenweight.reports.model import Report

BASELINE_ROW = "uniform"  # the dotted line, as in the paper, and no point of the curve


def parameter_value(row: str) -> float:
    """lambda or kappa of a row by its key: "lambda-0.25" is 0.25."""
    return float(row.rpartition("-")[2])


def draw(report: Report, _manifest: Manifest, _store_root: Path) -> Drawing:
    """Curves of this run with 95 % intervals and the paper's; a value that is not complete interrupts the curve."""
    from matplotlib.figure import Figure

    columns = {column.key: column for column in report.columns}
    values = {row.key: parameter_value(row.key) for row in report.rows if row.key != BASELINE_ROW}
    plotted = points(report, columns, values)
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
            curve(axes, found, values, label=label, **looks)
            for row, point in found.items():
                whisker(axes, point, values[row], looks["color"])
        axes.set_title(plain(column.label))
        axes.set_xlabel(report.stub[0])
        axes.set_xticks(list(values.values()), [f"{value:g}" for value in values.values()])
        axes.margins(x=0.08)
    panels[0].set_ylabel("difference to uniform (points)")
    legend = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values())[::-1], list(legend)[::-1], loc="outside upper center", ncols=3)
    about = f"{report.title}. Scale {report.scale}. Bars: 95 % intervals, paired bootstrap over samples."
    return drawing(figure, report, columns, plotted, about)
