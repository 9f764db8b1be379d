"""Figures of panels: ablations, RULER by length and LongBench by category, in which this run's values stand over the paper's;
sweeps, in which one swept field is the axis of each benchmark's panel and others tell the series apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from tokenweight.pipeline.manifest import Manifest
from tokenweight.recipes.recipe import shown
from tokenweight.reports.figures import style
from tokenweight.reports.figures.style import Drawing
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Source = Literal["this run", "paper"]
Series = Mapping[str, Sequence[str]]  # name -> rows
_SOURCES: tuple[tuple[Source, dict[str, Any]], ...] = (("paper", style.PAPER), ("this run", style.OURS))
_TYPES = {"value": "float64", "ci_low": "float64", "ci_high": "float64", "n": "Int64"}
BASELINE_ROW = "uniform"  # of an ablation: the dotted line, as in the paper, and no point of the curve
_COLUMNS, _SWEEP_COLUMNS = 4, 3  # panels side by side
_LINEAR, _SWEEP_LINEAR = 8, 10  # what is farther apart than this factor is on a logarithmic axis
_BESIDE = 40  # characters of all categories that have room side by side
_BARS = 0.8  # of the room between two categories


def points(report: Report, columns: Iterable[str], rows: Iterable[str] | None = None) -> pd.DataFrame:
    """A line for each complete cell of some columns (by key) and each of the paper's numbers, which have neither interval
    nor n; rows (by key): all unless given."""
    wanted, kept = set(columns), {row.key for row in report.rows} if rows is None else set(rows)
    made: list[tuple[Any, ...]] = []
    for row, column, cell in report.places:
        if column.key in wanted and row.key in kept:
            labels = (row.key, row.name, column.key, column.name)
            if cell.status == "complete" and cell.value is not None:
                made.append((*labels, "this run", cell.value, cell.ci_low, cell.ci_high, cell.n))
            if cell.paper is not None and cell.paper.value is not None:
                made.append((*labels, "paper", cell.paper.value, None, None, None))
    return pd.DataFrame(made, columns=["row", "row_label", "column", "column_label", "source", *_TYPES]).astype(_TYPES)


def draw_ablation(report: Report, _manifest: Manifest, _store_root: Path) -> Drawing:
    """Figures 1, 2, 4 and 5: the difference to the uniform baseline by lambda or kappa, a panel for each benchmark."""
    columns = {column.key: column for column in report.columns}
    # lambda or kappa of a row by its key: "lambda-0.25" is 0.25.
    values = {row.key: float(row.key.rpartition("-")[2]) for row in report.rows if row.key != BASELINE_ROW}
    plotted = points(report, columns, values)
    figure, panels = style.grid(len(columns), len(columns), lambda _: 2.15, sharey=True)
    handles: dict[str, Any] = {}
    for axes, (key, column) in zip(panels, columns.items(), strict=True):
        handles["uniform baseline"] = axes.axhline(0, label="uniform baseline", **style.BASELINE)
        for source, looks in _SOURCES:
            name = f"the paper, {report.paper_place}" if source == "paper" else source
            handles |= _curve(axes, _along(plotted, "row", source, key), values, looks, name)
        axes.set_title(style.plain(column.label))
        axes.set_xlabel(report.stub[0])
        axes.set_xticks(list(values.values()), [f"{value:g}" for value in values.values()])
        axes.margins(x=0.08)
    panels[0].set_ylabel("difference to uniform (points)")
    style.legend_above(figure, handles)
    about = f"{report.title}. Scale {report.scale}. Bars: 95 % intervals, paired bootstrap over samples."
    return _drawing(figure, report, columns, plotted, about)


def draw_lengths(report: Report, lengths_tokens: Mapping[str, int], baseline: str | None) -> Drawing:
    """RULER by length: a panel for each row, this run's curve over the paper's and over the baseline's.

    `lengths_tokens`: length of each RULER column by its key; `baseline`: key of the row shown in every panel.
    """
    plotted = points(report, lengths_tokens)
    figure, panels = style.grid(len(report.rows), _COLUMNS, lambda rows: 0.95 + 1.25 * rows, sharex=True, sharey=True)
    names = {row.key: style.plain(row.name) for row in report.rows}
    columns = [column for column in report.columns if column.key in lengths_tokens]
    ticks = [f"{c.label}\n({c.paper_label})" if c.has_paper_label else c.label for c in columns]
    far = max(lengths_tokens.values()) > _LINEAR * min(lengths_tokens.values())
    handles: dict[str, Any] = {}
    for axes, row in zip(panels, report.rows, strict=False):
        handles |= _curve(axes, _along(plotted, "column", "paper", row.key), lengths_tokens, style.PAPER, "the paper")
        if baseline is not None and baseline != row.key:
            found = _along(plotted, "column", "this run", baseline)
            handles |= _curve(axes, found, lengths_tokens, style.BASELINE, f"{names[baseline]}, this run")
        handles |= _curve(axes, _along(plotted, "column", "this run", row.key), lengths_tokens, style.OURS, "this run")
        axes.set_title(style.wrapped(row.name), loc="left")
    for number, axes in enumerate(panels):
        axes.set_xscale("log" if far else "linear")
        axes.set_xticks(list(lengths_tokens.values()), ticks, fontsize=style.SMALLEST)
        axes.minorticks_off()
        axes.margins(x=0.1)
        if number + _COLUMNS >= len(report.rows):  # a panel above an empty place keeps its tick labels
            axes.tick_params(labelbottom=True)
    figure.supylabel("RULER, mean recall of 13 tasks", fontsize=7)
    style.legend_above(figure, handles)
    scaled = any(column.has_paper_label for column in columns)
    about = f"Lengths in tokens{', in brackets those of the paper beside them' if scaled else ''}. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return _drawing(figure, report, lengths_tokens, plotted, about)


def draw_categories(report: Report, columns: Sequence[str], baseline: str | None) -> Drawing:
    """LongBench by task category: a panel for each category, a line in it for each row of the target.

    `columns`: keys of LongBench's columns, a panel each; `baseline`: key of the row whose value is a dotted line.
    """
    plotted = points(report, columns)
    height = 0.55 + 0.15 * len(report.rows)
    # One place more than columns: the legend's.
    figure, panels = style.grid(
        len(columns) + 1, _COLUMNS, lambda rows: 0.4 + rows * height, width=_COLUMNS, sharey=True
    )
    place = {row.key: float(number) for number, row in enumerate(report.rows)}
    names = {row.key: row.name for row in report.rows}
    labels = {column.key: column.label for column in report.columns}
    handles: dict[str, Any] = {}
    for axes, key in zip(panels, columns, strict=False):
        for source, looks in _SOURCES:
            found = _along(plotted, "row", source, key)
            if len(found):
                dots, heights = looks | {"linestyle": "none"}, [place[row] for row in found.index]
                name = "the paper" if source == "paper" else source
                (handles[name],) = axes.plot(found["value"].to_numpy(), heights, **dots)
                _whiskers(axes, found, place, looks["color"], upright=False)
            if source == "this run" and baseline is not None and baseline in found.index:
                line = axes.axvline(float(found["value"][baseline]), **style.BASELINE)
                handles[style.wrapped(f"{names[baseline]}, this run")] = line
        axes.set_title(style.plain(labels[key]), loc="left")
        axes.margins(x=0.08)
    panels[0].set_yticks(range(len(report.rows)), [style.wrapped(name, 40) for name in names.values()])
    panels[0].set_ylim(len(report.rows) - 0.4, -0.6)
    panels[len(columns)].set_axis_off()
    panels[len(columns)].legend(list(handles.values())[::-1], list(handles)[::-1], loc="center left")
    about = "LongBench, mean over the tasks of each category. "
    about += f"Scale {report.scale}. Bars: 95 % intervals, bootstrap over samples."
    return _drawing(figure, report, columns, plotted, about)


def draw_sweep(report: Report, manifest: Manifest, _store_root: Path) -> Drawing:
    """Curves by a number, bars by anything else, with 95 % intervals; a value that is not complete is left out.

    The axis is the first field whose values are several numbers, else the first.
    """
    figure_of = manifest.experiment.figure
    if figure_of is None:
        raise ValueError(f"{manifest.name} has no figure")
    values, keys = figure_of.values, list(figure_of.columns)
    fields = {field: [row[field] for row in values.values()] for field in next(iter(values.values()))}
    numeric = [
        field
        for field, found in fields.items()
        if len(set(map(str, found))) > 1 and all(isinstance(x, int | float) and not isinstance(x, bool) for x in found)
    ]
    axis = next(iter([*numeric, *fields]))
    places = {row: fields[axis] for row, fields in values.items()}
    series: dict[str, list[str]] = {}  # rows that differ in the axis alone, by what they share
    for row, held in values.items():
        name = ", ".join(f"{field} = {shown(value)}" for field, value in held.items() if field != axis)
        series.setdefault(name, []).append(row)
    plotted = points(report, keys)
    legend = 0.15 * math.ceil(len(series) / _SWEEP_COLUMNS)
    figure, panels = style.grid(len(keys), _SWEEP_COLUMNS, lambda rows: 0.6 + legend + 1.75 * rows)
    labels = {column.key: column.name for column in report.columns}
    handles: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=False):
        handles |= (_lines if numeric else _bars)(axes, _along(plotted, "row", "this run", key), series, places)
        axes.set_title(style.plain(labels[key]), loc="left")
        axes.set_xlabel(style.plain(axis))
    if len(series) > 1:
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=_SWEEP_COLUMNS)
    about = f"{report.title}. Scale {report.scale}. Vertical lines: 95 % intervals, bootstrap over samples."
    return _drawing(figure, report, keys, plotted, about)


def _lines(axes: Axes, found: pd.DataFrame, series: Series, places: Mapping[str, Any]) -> dict[str, Any]:
    """A line for each series; a row that lacks interrupts it."""
    handles: dict[str, Any] = {}
    for number, (name, rows) in enumerate(series.items()):
        looks = style.OURS if len(series) == 1 else style.look(number) | {"markersize": 3.5}
        of_rows, ordered = found.loc[found.index.isin(rows)], sorted(rows, key=lambda row: places[row])
        handles |= _curve(axes, of_rows, {row: places[row] for row in ordered}, looks, style.wrapped(name, 40))
    ticks = sorted(set(places.values()))
    if ticks[0] > 0 and ticks[-1] > _SWEEP_LINEAR * ticks[0]:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.margins(x=0.08)
    return handles


def _bars(axes: Axes, found: pd.DataFrame, series: Series, places: Mapping[str, Any]) -> dict[str, Any]:
    """A group of bars for each category, one of each series."""
    categories = list(dict.fromkeys(shown(value) for value in places.values()))
    width = _BARS / len(series)
    handles = {}
    for number, (name, rows) in enumerate(series.items()):
        colour = style.COLOURS[(number + 1) % len(style.COLOURS)]
        left = {row: categories.index(shown(places[row])) + (number - (len(series) - 1) / 2) * width for row in rows}
        there = found.loc[found.index.isin(rows)]
        handles[style.wrapped(name, 40)] = axes.bar(
            [left[row] for row in there.index], there["value"].to_numpy(), width * 0.9, color=colour, alpha=0.75
        )
        _whiskers(axes, there, left, "black")
    axes.set_xticks(range(len(categories)), [style.wrapped(category, 14) for category in categories])
    if sum(map(len, categories)) > _BESIDE:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlim(-0.6, len(categories) - 0.4)
    return handles


def _along(plotted: pd.DataFrame, axis: Literal["row", "column"], source: Source, other: str) -> pd.DataFrame:
    """The points of one row along its columns, or of one column along its rows, by key."""
    across = "column" if axis == "row" else "row"
    return plotted[(plotted[across] == other) & (plotted["source"] == source)].set_index(axis)


def _curve(
    axes: Axes, found: pd.DataFrame, places: Mapping[str, float], looks: dict[str, Any], name: str
) -> dict[str, Any]:
    """The line by its name in the legend, in the order of `places` (key -> x); a point that lacks interrupts it.

    With 95 % intervals where the line has markers.
    """
    if not len(found):
        return {}
    (line,) = axes.plot(list(places.values()), found["value"].reindex(list(places)).to_numpy(), label=name, **looks)
    if "marker" in looks:
        _whiskers(axes, found, places, looks["color"])
    return {name: line}


def _whiskers(
    axes: Axes, found: pd.DataFrame, places: Mapping[str, float], colour: str, *, upright: bool = True
) -> None:
    """Each point's 95 % interval at its place on the other axis, where it has one."""
    draw = axes.vlines if upright else axes.hlines
    for key, low, high in found[["ci_low", "ci_high"]].dropna().itertuples():
        draw(places[key], low, high, color=colour, linewidth=0.9)


def _drawing(figure: Figure, report: Report, columns: Iterable[str], plotted: pd.DataFrame, about: str) -> Drawing:
    """The figure with its lines below: what it is, and which cells have no value."""
    wanted = set(columns)
    by_cell: dict[tuple[str, str], list[str]] = {}  # columns ("": all of them) and status -> rows
    for row in report.rows:
        cells = [
            (column.name, cell.status)
            for column, cell in zip(report.columns, row.cells, strict=True)
            if column.key in wanted and cell.status != "not_in_paper"
        ]
        for status in ("missing", "partial", "refused"):
            if labels := [label for label, found in cells if found == status]:
                of_all = "" if len(labels) == len(cells) else f"{', '.join(labels)} of "
                by_cell.setdefault((of_all, status), []).append(row.name)
    lacking = [
        f"{which}{'all rows' if len(rows) == len(report.rows) else ', '.join(rows)} ({status})"
        for (which, status), rows in by_cell.items()
    ]
    nothing = "" if (plotted["source"] == "this run").any() else "Nothing of this run is complete."
    style.footnote(figure, [about, nothing, f"Left out: {'; '.join(lacking)}." if lacking else ""])
    return Drawing(figure, plotted)
