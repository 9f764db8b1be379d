"""Figure 3 drawn: the density of the PMI, and below it what each PMI variant of Section 5.3 selects."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports import pmi
from tokenweight.reports.figures import style
from tokenweight.reports.figures.style import Drawing
from tokenweight.reports.model import Report
from tokenweight.reports.pmi import Distribution
from tokenweight.reports.samples import Floats, read_unit, reads

KAPPA = 0.4  # Section 5.3: the variants are compared on sparse frozen with kappa = 0.4
LABELS = {"abs_pmi": "abs(PMI)", "ppmi": "PPMI", "npmi": "NPMI", "sppmi": "sPPMI", "snpmi": "sNPMI"}
_GRID_POINTS = 801
_TAIL = 0.002  # share of the tokens beyond either end of the plot
_LOWEST = 1e-4  # of the highest density: the lower end of the plot
_BEYOND = 1e3  # nats, outside of any plot: where an open range ends
_HEADER = ["model", "bandwidth_nats", "pmi_nats", "density_per_nat"]
_SELECTED, _SCORED = "#0072B2", "#C9C9C9"


def draw(report: Report, manifest: Manifest, store_root: Path) -> Drawing:
    """The density of each row that is there whole; for a single one also the ranges that the variants select."""

    found: dict[str, Distribution] = {}
    absent = []
    for row in report.rows:
        if lacking := {cell.status: None for cell in row.cells if cell.status != "complete"}:
            absent.append(f"{row.label}: {', '.join(lacking)}, the table's notes say why")
        else:  # of the first seed
            units = (unit for entry in manifest.rows if entry.row == row.key for unit in entry.units)
            unit = next(unit for unit in units if reads(manifest.experiment.columns[0].measure, unit))
            found[row.label] = pmi.read_distribution(read_unit(unit, store_root))
    only = next(iter(found.values())) if len(found) == 1 else None
    figure = Figure(figsize=(style.COLUMN_INCHES, 3.1 if only else 2.3))
    if only:
        axes, below = figure.subplots(2, sharex=True, gridspec_kw={"height_ratios": (3, 1.25), "hspace": 0.08})
        bars = _strips(below, only)
    else:
        axes = below = figure.subplots()
        bars = []
    axes.set_ylabel("density (per nat)")
    below.set_xlabel("PMI (nats)")
    if not found:
        style.say_nothing_to_draw(axes, absent)
        return Drawing(figure, pd.DataFrame(columns=_HEADER), "Nothing to draw.")
    curves = _curves(axes, found)
    for each in figure.axes:
        each.axvline(0, color="0.6", linewidth=0.6, linestyle=":", zorder=0)
    figure.legend(
        handles=[*axes.get_legend_handles_labels()[0], *bars],
        loc="outside upper left",
        fontsize=style.SMALLEST,
        handlelength=2.6,
    )
    if absent:
        style.footnote(figure, [f"Left out: {'; '.join(absent)}."])
    return Drawing(figure, curves, f"Density of the PMI of {', '.join(found)}.")


def _curves(axes: Axes, found: dict[str, Distribution]) -> pd.DataFrame:
    """Draw the densities over a common range; returns what the CSV has of them."""
    ends = [abs(pmi.quantile(d, share, "far")) for d in found.values() for share in (_TAIL, 1 - _TAIL)]
    limit = max(0.5, np.ceil(max(ends) * 2) / 2)
    grid: Floats = np.linspace(-limit, limit, _GRID_POINTS)
    tables, highest = [], 0.0
    for number, (label, distribution) in enumerate(found.items()):
        bandwidth, tokens = pmi.scott_bandwidth(distribution, "far"), distribution.total("tokens", "far")
        values = pmi.density(distribution, grid, bandwidth, "far")
        highest = max(highest, float(values.max()))
        axes.plot(
            grid,
            values,
            **style.look(number) | {"marker": ""},
            label=f"{style.plain(label)} ({tokens:,.0f} tokens, bandwidth {bandwidth:.3f} nats)",
        )
        table = pd.DataFrame({"bandwidth_nats": bandwidth, "pmi_nats": grid, "density_per_nat": values})
        tables.append(table.map("{:.6g}".format).assign(model=label)[_HEADER])
    axes.set_xlim(-limit, limit)
    axes.set_yscale("log")  # tokens of a large PMI are few: on a linear scale there is nothing but the peak
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(highest * _LOWEST, highest * 2)
    return pd.concat(tables)


def _strips(axes: Axes, distribution: Distribution) -> list[Patch]:
    """A bar for each variant: where its score is above 0 (light), what sparse weighting selects by it (dark), and on
    the right how many of all tokens have a score of zero. Returns what the bars are, for the legend."""

    beside = axes.get_yaxis_transform()
    for row, variant in enumerate(LABELS):
        positive = pmi.scores(variant, distribution.centres, distribution.shift_k) > 0
        bars = [(*ends, 0.66, _SCORED) for ends in pmi.ranges(distribution, positive)]
        bars += [(*ends, 0.32, _SELECTED) for ends in pmi.selected(distribution, variant, KAPPA)]
        for low, high, height, colour in bars:
            low, high = max(low, -_BEYOND), min(high, _BEYOND)
            axes.barh(row, high - low, left=low, height=height, color=colour, linewidth=0)
        zero = pmi.PERCENT * distribution.total(f"zero.{variant}", "all") / distribution.total("tokens", "all")
        axes.text(1.02, row, f"{zero:.0f} %", transform=beside, va="center", fontsize=style.SMALLEST)
    axes.text(1.02, -1.0, "score 0", transform=beside, va="center", fontsize=style.SMALLEST)
    axes.set(yticks=range(len(LABELS)), ylim=(len(LABELS) - 0.4, -0.6))
    axes.set_yticklabels(LABELS.values(), fontsize=style.SMALLEST)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return [
        Patch(color=_SCORED, label="score above 0"),
        Patch(color=_SELECTED, label=f"selected by score at \u03ba = {KAPPA}"),
    ]
