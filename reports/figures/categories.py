"""LongBench by task category: a panel for each category, a line in it for each row of the target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenweight.reports.figures.points import drawing, points, whisker
from tokenweight.reports.figures.style import BASELINE, OURS, PAPER, TEXT_INCHES, Drawing, plain, wrapped
from tokenweight.reports.model import Report

_COLUMNS = 4  # panels side by side


def draw(report: Report, columns: Sequence[str], baseline: str | None) -> Drawing:
    """`columns`: keys of LongBench's columns, a panel each; `baseline`: key of the row whose value is a dotted line."""
    from matplotlib.figure import Figure

    plotted = points(report, columns)
    rows_of_panels = math.ceil((len(columns) + 1) / _COLUMNS)  # one place more: the legend's
    figure = Figure(figsize=(TEXT_INCHES, 0.4 + rows_of_panels * (0.55 + 0.15 * len(report.rows))))
    panels = figure.subplots(rows_of_panels, _COLUMNS, sharey=True).ravel()
    place = {row.key: number for number, row in enumerate(report.rows)}
    names = {row.key: row.name for row in report.rows}
    labels = {column.key: column.label for column in report.columns}
    handles = {}
    for axes, key in zip(panels, columns, strict=False):
        for source, looks, name in (("paper", PAPER, "the paper"), ("this run", OURS, "this run")):
            found = [point for point in plotted if point.column == key and point.source == source]
            if not found:
                continue
            dots = looks | {"linestyle": "none"}
            (handles[name],) = axes.plot([p.value for p in found], [place[p.row] for p in found], **dots)
            for point in found:
                whisker(axes, point, place[point.row], looks["color"], upright=False)
                if point.source == "this run" and point.row == baseline:
                    handles[wrapped(f"{names[point.row]}, this run")] = axes.axvline(point.value, **BASELINE)
        axes.set_title(plain(labels[key]), loc="left")
        axes.margins(x=0.08)
    panels[0].set_yticks(range(len(report.rows)), [wrapped(name, 40) for name in names.values()])
    panels[0].set_ylim(len(report.rows) - 0.4, -0.6)
    for axes in panels[len(columns) :]:
        axes.set_axis_off()
    panels[len(columns)].legend(list(handles.values())[::-1], list(handles)[::-1], loc="center left")
    about = "LongBench, mean over the tasks of each category. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return drawing(figure, report, columns, plotted, about)
