"""RULER by length: a panel for each row of the target, this run's curve over the paper's and over the baseline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tokenweight.reports.figures.points import Point, Source, curve, drawing, points, whisker
from tokenweight.reports.figures.style import (
    BASELINE,
    OURS,
    PAPER,
    SMALLEST,
    Drawing,
    grid,
    plain,
    wrapped,
)
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4  # panels side by side
_LINEAR = 8  # lengths farther apart than this factor are on a logarithmic axis


def draw(report: Report, lengths_tokens: Mapping[str, int], baseline: str | None) -> Drawing:
    """`lengths_tokens`: length of each RULER column by its key; `baseline`: key of the row shown in every panel."""
    plotted = points(report, lengths_tokens)
    figure, panels = grid(len(report.rows), _COLUMNS, lambda rows: 0.95 + 1.25 * rows, sharex=True, sharey=True)
    names = {row.key: plain(row.name) for row in report.rows}
    legend: dict[str, Any] = {}
    for axes, row in zip(panels, report.rows, strict=False):
        of_row = [point for point in plotted if point.row == row.key]
        legend |= _curve(axes, of_row, lengths_tokens, "paper", PAPER, "the paper")
        if baseline not in (None, row.key):
            others = [point for point in plotted if point.row == baseline]
            name = f"{names[str(baseline)]}, this run"
            legend |= _curve(axes, others, lengths_tokens, "this run", BASELINE, name)
        legend |= _curve(axes, of_row, lengths_tokens, "this run", OURS, "this run")
        axes.set_title(wrapped(row.name), loc="left")
    _ticks(panels, report, lengths_tokens)
    figure.supylabel("RULER, mean recall of 13 tasks", fontsize=7)
    figure.legend(list(legend.values())[::-1], list(legend)[::-1], loc="outside upper center", ncols=3)
    scaled = any(column.has_paper_label for column in report.columns if column.key in lengths_tokens)
    about = f"Lengths in tokens{', in brackets those of the paper beside them' if scaled else ''}. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return drawing(figure, report, lengths_tokens, plotted, about)


def _curve(
    axes: Axes, of_row: list[Point], lengths_tokens: Mapping[str, int], source: Source, looks: dict[str, Any], name: str
) -> dict[str, object]:
    """The line by its name in the legend; a length that lacks interrupts it. Intervals where the line has markers."""
    found = {point.column: point for point in of_row if point.source == source}
    if not found:
        return {}
    line = curve(axes, found, lengths_tokens, **looks)
    if "marker" in looks:
        for key, point in found.items():
            whisker(axes, point, lengths_tokens[key], looks["color"])
    return {name: line}


def _ticks(panels: Any, report: Report, lengths_tokens: Mapping[str, int]) -> None:
    """At the lengths; below ours the paper's, where it is another."""
    labels = []
    for column in report.columns:
        if column.key in lengths_tokens:
            labels.append(f"{column.label}\n({column.paper_label})" if column.has_paper_label else column.label)
    far = max(lengths_tokens.values()) > _LINEAR * min(lengths_tokens.values())
    for axes in panels:
        axes.set_xscale("log" if far else "linear")
        axes.set_xticks(list(lengths_tokens.values()), labels, fontsize=SMALLEST)
        axes.minorticks_off()
        axes.margins(x=0.1)
    for number, axes in enumerate(panels):  # a panel above an empty place keeps its tick labels
        if number + _COLUMNS >= len(report.rows):
            axes.tick_params(labelbottom=True)
