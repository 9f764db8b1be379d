"""Figures of panels in which this run's values stand over the paper's: ablations, RULER by length, LongBench by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.figures.points import Point, curve, drawing, points, whisker
from tokenweight.reports.figures.style import BASELINE, OURS, PAPER, SMALLEST, Drawing, grid, plain, wrapped
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE_ROW = "uniform"  # of an ablation: the dotted line, as in the paper, and no point of the curve
_COLUMNS = 4  # panels side by side
_LINEAR = 8  # lengths farther apart than this factor are on a logarithmic axis


def draw_ablation(report: Report, _manifest: Manifest, _store_root: Path) -> Drawing:
    """Figures 1, 2, 4 and 5: the difference to the uniform baseline by lambda or kappa, a panel for each benchmark."""
    columns = {column.key: column for column in report.columns}
    # lambda or kappa of a row by its key: "lambda-0.25" is 0.25.
    values = {row.key: float(row.key.rpartition("-")[2]) for row in report.rows if row.key != BASELINE_ROW}
    plotted = points(report, columns, values)
    figure, panels = grid(len(columns), len(columns), lambda _: 2.15, sharey=True)
    handles: dict[str, Any] = {}
    for axes, (key, column) in zip(panels, columns.items(), strict=True):
        handles["uniform baseline"] = axes.axhline(0, label="uniform baseline", **BASELINE)
        for source, looks, name in (
            ("paper", PAPER, f"the paper, {report.paper_place}"),
            ("this run", OURS, "this run"),
        ):
            found = {p.row: p for p in plotted if p.column == key and p.source == source}
            handles |= _curve(axes, found, values, looks, name)
        axes.set_title(plain(column.label))
        axes.set_xlabel(report.stub[0])
        axes.set_xticks(list(values.values()), [f"{value:g}" for value in values.values()])
        axes.margins(x=0.08)
    panels[0].set_ylabel("difference to uniform (points)")
    _legend_above(figure, handles)
    about = f"{report.title}. Scale {report.scale}. Bars: 95 % intervals, paired bootstrap over samples."
    return drawing(figure, report, columns, plotted, about)


def draw_lengths(report: Report, lengths_tokens: Mapping[str, int], baseline: str | None) -> Drawing:
    """RULER by length: a panel for each row, this run's curve over the paper's and over the baseline's.

    `lengths_tokens`: length of each RULER column by its key; `baseline`: key of the row shown in every panel.
    """
    plotted = points(report, lengths_tokens)
    figure, panels = grid(len(report.rows), _COLUMNS, lambda rows: 0.95 + 1.25 * rows, sharex=True, sharey=True)
    names = {row.key: plain(row.name) for row in report.rows}
    handles: dict[str, Any] = {}
    for axes, row in zip(panels, report.rows, strict=False):
        shown = [("paper", row.key, PAPER, "the paper"), ("this run", row.key, OURS, "this run")]
        if baseline not in (None, row.key):
            shown.insert(1, ("this run", str(baseline), BASELINE, f"{names[str(baseline)]}, this run"))
        for source, key, looks, name in shown:
            found = {p.column: p for p in plotted if (p.row, p.source) == (key, source)}
            handles |= _curve(axes, found, lengths_tokens, looks, name)
        axes.set_title(wrapped(row.name), loc="left")
    _ticks(panels, report, lengths_tokens)
    figure.supylabel("RULER, mean recall of 13 tasks", fontsize=7)
    _legend_above(figure, handles)
    scaled = any(column.has_paper_label for column in report.columns if column.key in lengths_tokens)
    about = f"Lengths in tokens{', in brackets those of the paper beside them' if scaled else ''}. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return drawing(figure, report, lengths_tokens, plotted, about)


def draw_categories(report: Report, columns: Sequence[str], baseline: str | None) -> Drawing:
    """LongBench by task category: a panel for each category, a line in it for each row of the target.

    `columns`: keys of LongBench's columns, a panel each; `baseline`: key of the row whose value is a dotted line.
    """
    plotted = points(report, columns)
    height = 0.55 + 0.15 * len(report.rows)
    # One place more than columns: the legend's.
    figure, panels = grid(len(columns) + 1, _COLUMNS, lambda rows: 0.4 + rows * height, width=_COLUMNS, sharey=True)
    place = {row.key: number for number, row in enumerate(report.rows)}
    names = {row.key: row.name for row in report.rows}
    labels = {column.key: column.label for column in report.columns}
    handles: dict[str, Any] = {}
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
    panels[len(columns)].set_axis_off()
    panels[len(columns)].legend(list(handles.values())[::-1], list(handles)[::-1], loc="center left")
    about = "LongBench, mean over the tasks of each category. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return drawing(figure, report, columns, plotted, about)


def _curve(
    axes: Axes, found: Mapping[str, Point], places: Mapping[str, float], looks: dict[str, Any], name: str
) -> dict[str, Any]:
    """The line by its name in the legend; a point that lacks interrupts it. Intervals where the line has markers."""
    if not found:
        return {}
    line = curve(axes, found, places, label=name, **looks)
    if "marker" in looks:
        for key, point in found.items():
            whisker(axes, point, places[key], looks["color"])
    return {name: line}


def _legend_above(figure: Figure, handles: Mapping[str, Any]) -> None:
    figure.legend(list(handles.values())[::-1], list(handles)[::-1], loc="outside upper center", ncols=3)


def _ticks(panels: Any, report: Report, lengths_tokens: Mapping[str, int]) -> None:
    """At the lengths; below ours the paper's, where it is another."""
    labels = []
    for column in report.columns:
        if column.key in lengths_tokens:
            labels.append(f"{column.label}\n({column.paper_label})" if column.has_paper_label else column.label)
    far = max(lengths_tokens.values()) > _LINEAR * min(lengths_tokens.values())
    for number, axes in enumerate(panels):
        axes.set_xscale("log" if far else "linear")
        axes.set_xticks(list(lengths_tokens.values()), labels, fontsize=SMALLEST)
        axes.minorticks_off()
        axes.margins(x=0.1)
        if number + _COLUMNS >= len(report.rows):  # a panel above an empty place keeps its tick labels
            axes.tick_params(labelbottom=True)
