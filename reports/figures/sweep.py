"""A sweep: a panel for each benchmark, its value by a swept field; other swept fields tell the series apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.pipeline.manifest import Manifest
from tokenweight.recipes.recipe import shown
from tokenweight.reports.figures.points import Point, curve, drawing, points, whisker
from tokenweight.reports.figures.style import COLOURS, OURS, Drawing, grid, look, plain, wrapped
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[str, Mapping[str, Any]]  # row -> symbol of a field -> value
_COLUMNS = 3  # panels side by side
_LINEAR = 10  # values farther apart than this factor are on a logarithmic axis
_BESIDE = 40  # characters of all categories that have room side by side
_BARS = 0.8  # of the room between two categories


def axis_of(values: Values) -> str:
    """The field on the axis: the first whose values are several numbers, else the first."""
    fields = list(next(iter(values.values())))
    return next((field for field in fields if _is_numeric(values, field)), fields[0])


def _is_numeric(values: Values, field: str) -> bool:
    found = [row[field] for row in values.values()]
    return len(set(map(str, found))) > 1 and all(isinstance(x, int | float) and not isinstance(x, bool) for x in found)


def draw(report: Report, manifest: Manifest, _store_root: Path) -> Drawing:
    """Curves by a number, bars by anything else, with 95 % intervals; a value that is not complete is left out."""
    figure_of = manifest.experiment.figure
    if figure_of is None:
        raise ValueError(f"{manifest.name} has no figure")
    values, keys = figure_of.values, list(figure_of.columns)
    axis = axis_of(values)
    plotted = points(report, keys)
    series = _series(values, axis)
    legend = 0.15 * math.ceil(len(series) / _COLUMNS)
    figure, panels = grid(len(keys), _COLUMNS, lambda rows: 0.6 + legend + 1.75 * rows)
    labels = {column.key: column.name for column in report.columns}
    handles: dict[str, Any] = {}
    draw_in = _curves if _is_numeric(values, axis) else _bars
    for axes, key in zip(panels, keys, strict=False):
        found = {point.row: point for point in plotted if point.column == key}
        handles |= draw_in(axes, found, series, {row: fields[axis] for row, fields in values.items()})
        axes.set_title(plain(labels[key]), loc="left")
        axes.set_xlabel(plain(axis))
    if len(series) > 1:
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=_COLUMNS)
    about = f"{report.title}. Scale {report.scale}. Vertical lines: 95 % intervals, bootstrap over samples."
    return drawing(figure, report, keys, plotted, about)


def _series(values: Values, axis: str) -> dict[str, list[str]]:
    """Rows that differ in the axis alone, by what they share; "" where the axis is all there is."""
    series: dict[str, list[str]] = {}
    for row, fields in values.items():
        name = ", ".join(f"{field} = {shown(value)}" for field, value in fields.items() if field != axis)
        series.setdefault(name, []).append(row)
    return series


def _curves(
    axes: Axes, found: Mapping[str, Point], series: Mapping[str, list[str]], places: Mapping[str, float]
) -> dict[str, Any]:
    """A line for each series; a row that lacks interrupts it."""
    handles = {}
    for number, (name, rows) in enumerate(series.items()):
        ordered = {row: places[row] for row in sorted(rows, key=lambda row: places[row])}
        looks = OURS if len(series) == 1 else look(number) | {"markersize": 3.5}
        handles[wrapped(name, 40)] = curve(axes, found, ordered, **looks)
        for row, place in ordered.items():
            whisker(axes, found.get(row), place, looks["color"])
    ticks = sorted(set(places.values()))
    if ticks[0] > 0 and ticks[-1] > _LINEAR * ticks[0]:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.margins(x=0.08)
    return handles


def _bars(
    axes: Axes, found: Mapping[str, Point], series: Mapping[str, list[str]], places: Mapping[str, Any]
) -> dict[str, Any]:
    """A group of bars for each category, one of each series."""
    categories = list(dict.fromkeys(shown(value) for value in places.values()))
    width = _BARS / len(series)
    handles = {}
    for number, (name, rows) in enumerate(series.items()):
        colour = COLOURS[(number + 1) % len(COLOURS)]
        left = {row: categories.index(shown(places[row])) + (number - (len(series) - 1) / 2) * width for row in rows}
        there = [row for row in rows if row in found]
        handles[wrapped(name, 40)] = axes.bar(
            [left[row] for row in there], [found[row].value for row in there], width * 0.9, color=colour, alpha=0.75
        )
        for row in there:
            whisker(axes, found[row], left[row], "black")
    axes.set_xticks(range(len(categories)), [wrapped(category, 14) for category in categories])
    if sum(map(len, categories)) > _BESIDE:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlim(-0.6, len(categories) - 0.4)
    return handles
