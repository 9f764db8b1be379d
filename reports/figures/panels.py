"""Figures of panels: ablations and sweeps, a benchmark by length, over the paper's values where it has some."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import ColumnMean, Difference, Perplexity, SampleMean, TaskMean
from tokenweight.recipes.recipe import shown
from tokenweight.reports.comparisons import PMI_SHARES
from tokenweight.reports.figures import style
from tokenweight.reports.figures.style import Drawing
from tokenweight.reports.model import Report

_TYPES = {"value": "float64", "ci_low": "float64", "ci_high": "float64", "n": "Int64"}
Axis = Literal["row", "column"]
Places = Mapping[str, float]  # of points on an axis, by the key of their row or column
BASELINE_ROW = "uniform"  # of an ablation: the dotted line, as in the paper, and no point of the curve
_COLUMNS, _SWEEP_COLUMNS = 4, 3  # panels side by side
_LINEAR, _SWEEP_LINEAR = 8, 20  # what is farther apart than this factor is on a logarithmic axis
_BESIDE = 40  # characters of all categories that have room side by side
_SHARES = {"κ": " (share of tokens)", "λ": " (share of uniform weight)"}  # units of what is swept


def points(report: Report, columns: Collection[str], rows: Collection[str]) -> pd.DataFrame:
    """A line for each value of some columns and rows (by key) and each of the paper's, which have neither interval nor n."""
    made: list[tuple[Any, ...]] = []
    for row, column, cell in report.places:
        if column.key in columns and row.key in rows:
            labels = (row.key, row.name, column.key, column.name)
            made.append((*labels, "this run", cell.value, cell.ci_low, cell.ci_high, cell.n))
            made.append((*labels, "paper", cell.paper and cell.paper.value, None, None, None))
    names = ["row", "row_label", "column", "column_label", "source", *_TYPES]
    return pd.DataFrame(made, columns=names).astype(_TYPES).dropna(subset="value")


def draw_sweep(report: Report, manifest: Manifest, _store_root: Path) -> Drawing:
    """A panel for each column: curves by a number, points by anything else; a value that is not complete is left out.

    The axis is the first field whose values are several numbers, else the first; rows that differ in other fields are
    other curves. An ablation (Figures 1, 2, 4 and 5) is a sweep over lambda or kappa, whose values are differences to
    the uniform baseline.
    """
    described = manifest.experiment.figure
    assert described is not None
    is_ablation = described.kind == "ablation"
    values = described.values
    if is_ablation:  # lambda or kappa of a row by its key: "lambda-0.25" is 0.25
        ablated = (row.key for row in report.rows if row.key != BASELINE_ROW)
        values = {row: {report.stub[0]: float(row.rpartition("-")[2])} for row in ablated}
    columns = {column.key: column for column in report.columns}
    keys = list(described.columns or columns)
    fields = pd.DataFrame.from_dict(values, orient="index")
    numeric = [field for field in fields.select_dtypes("number") if fields[field].nunique() > 1]
    axis = next(iter([*numeric, *fields]))
    places = {row: held[axis] for row, held in values.items()}
    names = [] if numeric else list(dict.fromkeys(map(shown, places.values())))
    if names:
        places = {row: names.index(shown(value)) for row, value in places.items()}
    series: dict[str, list[str]] = {}  # rows that differ in the axis alone, by what they share
    for row in sorted(places, key=places.__getitem__):
        name = ", ".join(f"{field} = {shown(held)}" for field, held in values[row].items() if field != axis)
        series.setdefault(style.wrapped(name, 40) or "this run", []).append(row)
    plotted = points(report, keys, values)
    height = 0.25 + 0.15 * math.ceil(len(series) / _SWEEP_COLUMNS)
    figure, panels = style.grid(len(keys), _SWEEP_COLUMNS, lambda rows: height + 1.75 * rows, sharey=is_ablation)
    for axes, key in zip(panels, keys, strict=False):
        if is_ablation:
            axes.axhline(0, label="uniform baseline", **style.BASELINE)
        _lines(axes, _along(plotted, "row", "this run", key), series, places, names)
        axes.set_title(style.plain(columns[key].label if is_ablation else columns[key].name))
        axes.set_xlabel(style.plain(axis) + _SHARES.get(axis, ""))
        axes.set_ylabel("" if is_ablation else _unit(manifest, key))
    if is_ablation:
        panels[0].set_ylabel("difference to uniform (points)")
        twins = _of_paper(panels[: len(keys)], plotted, "row", keys, places, f"the paper, {report.paper_place}")
        ours, theirs = (plotted.loc[plotted["source"] == one, "value"].abs().max() for one in ("this run", "paper"))
        for twin in twins:  # zero is at one height
            twin.set_ylabel(twin.get_ylabel().replace("%", "points"))
            low, high = panels[0].get_ylim()
            factor = theirs / ours if ours > 0 else theirs / max(-low, high)
            twin.set_ylim(low * factor, high * factor)
    if len(handles := style.by_name(figure)) > 1:
        style.legend_above(figure, handles)
    return _drawing(figure, report, keys, plotted, f"{report.title}.")


def draw_lengths(
    report: Report,
    _manifest: Manifest,
    _store_root: Path,
    lengths_tokens: Mapping[str, int],
    baseline: str | None,
    axis: str,
) -> Drawing:
    """A benchmark by length: a panel for each row, this run's curve over the paper's and over the baseline's.

    `lengths_tokens`: length of each of its columns by key; `baseline`: key of the row shown in every panel; `axis`: what is
    along the vertical one, the benchmark's name first.
    """
    plotted = points(report, lengths_tokens, [row.key for row in report.rows])
    figure, panels = style.grid(len(report.rows), _COLUMNS, lambda rows: 0.95 + 1.25 * rows, sharex=True, sharey=True)
    names = {row.key: style.plain(row.name) for row in report.rows}
    columns = [column for column in report.columns if column.key in lengths_tokens]
    ticks = [f"{c.label}\n({c.paper_label})" if c.has_paper_label else c.label for c in columns]
    far = max(lengths_tokens.values()) > _LINEAR * min(lengths_tokens.values())
    rows = [row.key for row in report.rows]
    for axes, row in zip(panels, report.rows, strict=False):
        if baseline is not None and baseline != row.key:
            found = _along(plotted, "column", "this run", baseline)
            _curve(axes, found, lengths_tokens, style.BASELINE, f"{names[baseline]}, this run")
        _curve(axes, _along(plotted, "column", "this run", row.key), lengths_tokens, style.OURS, "this run")
        axes.set_title(style.wrapped(row.name), loc="left")
    for number, axes in enumerate(panels):
        axes.set_xscale("log" if far else "linear")
        axes.set_xticks(list(lengths_tokens.values()), ticks, fontsize=style.SMALLEST)
        axes.minorticks_off()
        axes.margins(x=0.1)
        if number + _COLUMNS >= len(report.rows):  # a panel above an empty place keeps its tick labels
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("length (tokens)")
    _of_paper(panels[: len(rows)], plotted, "column", rows, lengths_tokens, "the paper")
    figure.supylabel(axis, fontsize=7)
    style.legend_above(figure, style.by_name(figure))
    scaled = any(column.has_paper_label for column in columns)
    about = f"{axis.partition(',')[0]} by length{', in brackets those of the paper beside them' if scaled else ''}."
    return _drawing(figure, report, lengths_tokens, plotted, about)


def _unit(manifest: Manifest, key: str) -> str:
    measure = next(column.measure for column in manifest.experiment.columns if column.key == key)
    if isinstance(measure, SampleMean | TaskMean | ColumnMean) or getattr(measure, "statistic", "") in PMI_SHARES:
        return "%"
    if isinstance(measure, Perplexity) or getattr(measure, "task", "") == "auc":
        return "no unit"
    return "points" if isinstance(measure, Difference) else "nats"


def _of_paper(
    panels: Sequence[Axes], plotted: pd.DataFrame, along: Axis, keys: Iterable[str], places: Places, name: str
) -> list[Axes]:
    """The paper's values in each panel, on an axis of their own at the right: its model has 8B parameters."""
    colour, found = style.PAPER["color"], plotted.loc[plotted["source"] == "paper", "value"]
    margin, twins = 0.1 * max(1.0, float(found.max() - found.min())), []
    for number, (axes, key) in enumerate(zip(panels, keys, strict=True), start=1):
        paper = _along(plotted, along, "paper", key)
        if paper.empty:
            continue
        twin = axes.twinx()
        axes.set(zorder=1, facecolor="none")  # ours above it
        _curve(twin, paper, places, style.PAPER, name)
        twin.spines["right"].set(visible=True, color=colour)
        twin.set_ylim(float(found.min()) - margin, float(found.max()) + margin)
        is_last = number == len(panels) or number % _COLUMNS == 0
        twin.tick_params(colors=colour, labelright=is_last)
        twin.set_ylabel("the paper, 8B (%)" if is_last else "", color=colour)
        twins.append(twin)
    return twins


def _lines(
    axes: Axes, found: pd.DataFrame, series: Mapping[str, list[str]], places: Places, names: Sequence[str]
) -> None:
    """A curve of each series; points alone where the axis has names, whose places count from 0."""
    for number, (name, rows) in enumerate(series.items()):
        looks = style.OURS if len(series) == 1 else style.look(number) | {"markersize": 3.5}
        looks = looks | {"linestyle": "none"} if names else looks
        _curve(axes, found, {row: places[row] for row in rows}, looks, name)
    ticks = sorted(set(places.values()))
    if not names and ticks[0] > 0 and ticks[-1] > _SWEEP_LINEAR * ticks[0]:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [style.wrapped(name, 14) for name in names] or [f"{tick:g}" for tick in ticks])
    axes.tick_params(axis="x", labelrotation=90 if sum(map(len, names)) > _BESIDE else 0)
    axes.minorticks_off()
    axes.margins(x=0.08)


def _along(plotted: pd.DataFrame, axis: Axis, source: str, other: str) -> pd.DataFrame:
    """The points of one row along its columns, or of one column along its rows, by key."""
    across = "column" if axis == "row" else "row"
    return plotted[(plotted[across] == other) & (plotted["source"] == source)].set_index(axis)


def _curve(axes: Axes, found: pd.DataFrame, places: Places, looks: dict[str, Any], name: str) -> None:
    """A line through `places` (key -> x), interrupted where a point lacks; with 95 % intervals where it has markers."""
    held, at = found.reindex(list(places)), list(places.values())
    if held["value"].notna().any():
        values = held["value"].to_numpy()
        axes.plot(at, values, label=name, **looks)
        if "marker" in looks:
            bounds = held.assign(at=at)[["at", "ci_low", "ci_high"]].dropna()
            axes.vlines(*bounds.to_numpy().T, color=looks["color"], linewidth=0.9)


def _drawing(figure: Figure, report: Report, columns: Iterable[str], plotted: pd.DataFrame, about: str) -> Drawing:
    """The figure with its lines below: what it is, and which cells have no value."""
    wanted = set(columns)
    shown = [cell for _, column, cell in report.places if column.key in wanted and cell.status != "not_in_paper"]
    lacking = sum(cell.value is None for cell in shown)
    about += f" Scale {report.scale}. Bars: 95 % intervals over {'seeds and ' if report.seeds > 1 else ''}samples."
    left_out = f"Left out: {lacking} of {len(shown)} values; the table's notes say why." if lacking else ""
    style.footnote(figure, [about, left_out])
    return Drawing(figure, plotted, about)
