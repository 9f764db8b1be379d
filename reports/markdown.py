"""A report as Markdown (GitHub's tables; also the artifact that Prefect shows): table.md.jinja."""

import re
from collections.abc import Iterable
from pathlib import Path

from tokenweight.latex import environment
from tokenweight.reports import display
from tokenweight.reports.model import Report

_SPECIAL = re.compile(r"([\\`*_\[\]<|~$#])")
_BLOCK_START = re.compile(r"^(\d+(?=[.)])|(?=[-+>]))")  # a backslash belongs behind a number, before a sign
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
    templates.filters |= {"md": escape, "item": _item, "line": line}
    templates.filters["superscript"] = lambda mark: str(mark).translate(_SUPERSCRIPTS)
    return templates.get_template("table.md.jinja").render(report=report, display=display)


def _item(text: str) -> str:
    """A line of a list, in which nothing begins a list, quotation or heading of its own."""
    return "- " + _BLOCK_START.sub(r"\1\\", escape(text))
