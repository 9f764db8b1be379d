"""What all figures share: sizes, colours, lines, fonts, and rendering as PDF, SVG and PNG."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES, TEXT_INCHES = 3.03, 6.3  # a column and both columns of the ACL's style, drawn at the size of print
# Okabe and Ito 2008: told apart by colour-blind readers. In grey the line styles and markers tell curves apart.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Of this run's values, of the paper's, and of a baseline's; titles of the panels of trainings.
LOOKS: dict[str, Any] = json.loads(Path(__file__).with_name("looks.json").read_text(encoding="utf-8"))
OURS, PAPER, BASELINE = LOOKS["ours"], LOOKS["paper"], LOOKS["baseline"]
SMALLEST = 6  # points; figures.mplstyle has all other sizes
# No dates: the same records give the same files.
FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"dpi": 300},
}


@dataclass(frozen=True)
class Drawing:
    """A figure, what is plotted (a table without lines where nothing is), and what it is for those who do not see it."""

    figure: Figure
    table: pd.DataFrame
    about: str

    @property
    def data_csv(self) -> str:
        return self.table.to_csv(index=False, lineterminator="\n")


def style() -> AbstractContextManager[None]:
    """matplotlib's settings for the figures drawn and rendered inside: those of figures.mplstyle."""
    import matplotlib as mpl

    return mpl.rc_context(fname=Path(__file__).with_name("figures.mplstyle"))


def grid(count: int, columns: int, height: Callable[[int], float], **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure over both text columns with `count` panels; `height`: in inches, by the number of rows of panels."""
    from matplotlib.figure import Figure as NewFigure

    rows = math.ceil(count / columns)
    figure = NewFigure(figsize=(TEXT_INCHES, height(rows)))
    panels = list(figure.subplots(rows, min(columns, count), squeeze=False, **options).ravel())
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as PDF, SVG and PNG, by these names; the same figure gives the same bytes."""
    rendered = {}
    for suffix, options in FORMATS.items():
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


def by_name(figure: Figure) -> dict[str, Any]:
    return {name: one for axes in figure.axes for one, name in zip(*axes.get_legend_handles_labels(), strict=True)}


def legend_above(figure: Figure, handles: Mapping[str, Any]) -> None:
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)


def footnote(figure: Figure, lines: Iterable[str]) -> None:
    characters = int(figure.get_figwidth() * 72 / (0.52 * SMALLEST))  # 0.52 em: the font's mean width, measured
    text = "\n".join(textwrap.fill(plain(line), characters) for line in lines if line)
    figure.supxlabel(text, x=0.005, ha="left", fontsize=SMALLEST, linespacing=1.15)


def say_nothing_to_draw(axes: Axes, lines: Iterable[str]) -> None:
    text = "\n".join(textwrap.fill(plain(line), 60) for line in lines)
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=SMALLEST)
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
