"""A report as Markdown (GitHub's tables; also the artifact that Prefect shows)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tokenweight.latex import environment
from tokenweight.reports import display
from tokenweight.reports.display import NOT_IN_PAPER, paper_text
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn

_SPECIAL = re.compile(r"([\\`*_\[\]<|~$#])")
_BLOCK_START = re.compile(r"^([-+>]|\d+(?=[.)]))")
_EMPHASIS: dict[Mark, tuple[str, str]] = {"underline": ("<u>", "</u>"), "italic": ("*", "*"), "bold": ("**", "**")}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line, inside a table cell or out of it."""
    flat = " ".join(text.split()).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", flat)


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def render(report: Report) -> str:
    """The whole report: values, in style both with the paper's and the difference in brackets, intervals, notes."""
    templates = environment(Path(__file__).parent)
    templates.filters |= {"md": escape, "item": _item, "line": line, "superscript": _superscript}
    return templates.get_template("table.md.jinja").render(
        report=report,
        display=display,
        value=_paper_value if report.style == "paper" else _value,
        interval=_interval,
        difference=_difference,
        compared=[row for row in report.rows if any(cell.difference for cell in row.cells)],
        has_intervals=any(cell.ci_low is not None or cell.difference for cell in report.cells),
    )


def _value(cell: Cell, column: ReportColumn) -> str:
    text = display.value_text(cell, column)
    if cell.status == "not_in_paper":
        return text
    text = _emphasised(text, cell.emphasis) + "˒".join(_superscript(mark) for mark in cell.marks)
    if paper_text(cell) in ("", NOT_IN_PAPER):
        return text
    less_paper = [] if cell.less_paper is None else [display.less_paper_text(cell, column)]
    return f"{text} ({', '.join([escape(paper_text(cell)), *less_paper])})"


def _paper_value(cell: Cell, _: ReportColumn) -> str:
    return _emphasised(escape(paper_text(cell)), cell.paper.emphasis if cell.paper else ())


def _interval(cell: Cell, column: ReportColumn) -> str:
    return " ".join(filter(None, (display.interval_text(cell, column), display.n_text(cell))))


def _difference(cell: Cell, column: ReportColumn) -> str:
    text = escape(display.difference_text(cell, column))
    return f"**{text}**" if display.is_significant(cell) else text


def _emphasised(text: str, emphasis: tuple[Mark, ...]) -> str:
    for mark, (begin, end) in _EMPHASIS.items():
        if mark in emphasis:
            text = f"{begin}{text}{end}"
    return text


def _superscript(mark: int) -> str:
    return str(mark).translate(_SUPERSCRIPTS)


def _item(text: str) -> str:
    """A line of a list, in which nothing begins a list, quotation or heading of its own."""
    return "- " + _BLOCK_START.sub(
        lambda start: f"{start[1]}\\" if start[1].isdigit() else f"\\{start[1]}", escape(text)
    )
