"""A report as LaTeX: booktabs, the paper's column groups, label columns and rules (table.tex.jinja), and macros for prose.

A difference to another row is in brackets behind its value, as in Tables 5 and 11. Ours and the paper's stand one
above the other, then ours less the paper's. `\\TwTableThreeUniformRuler` prints what the table prints: a name is `\\Tw` or,
for what the paper prints, `\\TwPaper`, then target, row and column by their keys: words begin with a capital, digits are
spelled one by one (`ruler-32k`: `RulerThreeTwoK`), a point is `Point`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.latex import CODE_POINTS, environment, escape
from tokenweight.reports import display
from tokenweight.reports.model import Report

_SPELLED = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_CODE_POINTS_MEAN = "{[}U+\\ldots{]}: characters that LaTeX's T1 fonts lack, as their Unicode code points."


def render(report: Report) -> str:
    """The table with its notes below it: a document by itself, or to `\\input` in one with booktabs and T1 fonts."""
    differences = {column.difference_of: index for index, column in enumerate(report.columns)}
    shown = {column.key for column in report.columns}
    columns = [
        (index, column, differences.get(column.key))
        for index, column in enumerate(report.columns)
        if column.difference_of not in shown
    ]
    templates = environment(Path(__file__).parent)
    # Of a label letters, digits and hyphens alone: it needs no escape in LaTeX.
    templates.filters |= {"tex": escape, "number": number, "label": partial(re.sub, r"[^A-Za-z0-9-]+", "-")}
    template = templates.get_template("table.tex.jinja")
    # The stub may name the only group.
    groups = [("" if name in report.stub else name, n) for name, n in display.groups_of(place[1] for place in columns)]
    parts: dict[str, Any] = {"report": report, "columns": columns, "groups": groups, "display": display}
    text = template.render(parts, meaning="")
    return template.render(parts, meaning=_CODE_POINTS_MEAN) if CODE_POINTS in text else text


def number(text: str) -> str:
    """A number as printed, with a minus and not a hyphen."""
    return re.sub(r"^([+-])(?=[\d.])", r"\\ensuremath{\1}", escape(text))


def render_macros(report: Report) -> str:
    """Each number as a macro (an em dash without a complete value), by the report's style: a file to `\\input` in the preamble."""
    what = "as the paper prints them" if report.style == "paper" else f"{report.scale} scale"
    lines = [f"% Numbers of {escape(report.target)}, {what}. In prose: \\Name{{}}. Needs \\usepackage[T1]{{fontenc}}."]
    macros: dict[str, str] = {}
    printed: set[tuple[str, str]] = set()

    def define(text: str, *keys: str) -> None:
        name = _macro_name(*keys)
        while name in macros:  # another cell has it
            name += "Again"
        macros[name] = number(text)

    for row, column, cell in report.places:
        if report.style != "paper":
            text = display.NO_NUMBER if cell.value is None else display.value_text(cell, column)
            define(text, report.target, row.key, column.key)
        place = (row.key, column.paper_column or "")
        if cell.paper and cell.paper.value is not None and place not in printed:  # once, beside several setups
            printed.add(place)
            define(cell.paper.printed, "paper", report.target, *place)
    lines += (rf"\newcommand{{\{name}}}{{{text}}}" for name, text in macros.items())
    return "\n".join(lines) + "\n"


def _macro_name(*keys: str) -> str:
    """`Tw` and the keys of target, row and column, letters only: ("table-3", "uniform") is TwTableThreeUniform."""
    flat = unicodedata.normalize("NFKD", " ".join(keys))
    spelled = re.sub(r"(?<=\d)\.(?=\d)", " point ", flat)
    spelled = re.sub("[0-9]", lambda digit: f" {_SPELLED[int(digit[0])]} ", spelled)
    words = re.findall(r"[A-Za-z]+", spelled)
    return "Tw" + "".join(word[0].upper() + word[1:] for word in words)
