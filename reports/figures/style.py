"""What all figures share: sizes, colours, lines, fonts, and rendering as PDF, SVG and PNG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.model import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES, TEXT_INCHES = 3.03, 6.3  # a column and both columns of the ACL's style, drawn at the size of print
# Okabe and Ito 2008: told apart by colour-blind readers. In grey the line styles and markers tell curves apart.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
OURS: dict[str, Any] = {"color": "#0072B2", "marker": "o", "markersize": 3.5, "linestyle": "-", "linewidth": 1.2}
PAPER: dict[str, Any] = {
    "color": "#8C8C8C",
    "marker": "D",
    "markersize": 3.2,
    "markerfacecolor": "white",
    "markeredgewidth": 0.8,
    "linestyle": "--",
    "linewidth": 0.8,
    "zorder": 1.5,
}
BASELINE: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 0.9, "zorder": 1}
SMALL, SMALLEST = 7, 6  # points
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": SMALL,
    "axes.titlesize": SMALL,
    "axes.labelsize": SMALL,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a dollar in a label is a dollar
    "pdf.fonttype": 42,  # fonts as TrueType: text stays text
    "svg.fonttype": "path",  # the same on every machine
    "svg.hashsalt": "tokenweight",  # the same bytes for the same figure
}
# No dates: the same records give the same files.
_FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"dpi": 300},
}


@dataclass(frozen=True)
class Drawing:
    """A figure, and what is plotted as CSV: a header alone where nothing is."""

    figure: Figure
    data_csv: str


# From a target's report, its manifest and the store's root to its figure; what lacks is said in the figure.
Draw = Callable[[Report, Manifest, Path], Drawing]


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's settings for the figures drawn and rendered inside."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def grid(
    count: int, columns: int, height: Callable[[int], float], *, width: int = 0, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure over both text columns with `count` panels and those of its last row that stay empty, which are hidden.

    `height`: inches by the number of rows of panels; `width`: places that a row has at least.
    """
    from matplotlib.figure import Figure as NewFigure

    rows = math.ceil(count / columns)
    figure = NewFigure(figsize=(TEXT_INCHES, height(rows)))
    panels = list(figure.subplots(rows, max(width, min(columns, count)), squeeze=False, **options).ravel())
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as PDF, SVG and PNG, by these names; the same figure gives the same bytes."""
    rendered = {}
    for suffix, options in _FORMATS.items():
        content = BytesIO()
        figure.savefig(content, format=suffix, **options)
        rendered[suffix] = content.getvalue()
    return rendered


def look(number: int) -> dict[str, Any]:
    """Colour, line style and marker of the n-th of many lines; no two of the first 49 are the same."""
    shifted = (number + number // len(COLOURS)) % len(LINE_STYLES)
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": LINE_STYLES[shifted], "marker": MARKERS[shifted]}


def plain(label: str) -> str:
    """A label as matplotlib shows it whole: one line, no control characters, no underscore that hides it in a legend."""
    text = "".join(character if character.isprintable() else " " for character in label)
    return f" {text}" if text.startswith("_") else text


def wrapped(label: str, characters: int = 25) -> str:
    """:func:`plain` in lines that fit a panel: names of models can be long."""
    return textwrap.fill(plain(label), characters)


def footnote(figure: Figure, lines: Iterable[str]) -> None:
    """Small lines below the whole figure, wrapped to its width."""
    characters = int(figure.get_figwidth() * 72 / (0.52 * SMALLEST))  # 0.52 em: the font's mean width, measured
    text = "\n".join(textwrap.fill(plain(line), characters) for line in lines if line)
    figure.supxlabel(text, x=0.005, ha="left", fontsize=SMALLEST, linespacing=1.15)


def say_nothing_to_draw(axes: Axes, lines: Iterable[str]) -> None:
    """The reasons in place of the curves."""
    text = "\n".join(textwrap.fill(plain(line), 60) for line in lines)
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=SMALLEST)
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
