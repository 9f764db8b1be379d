"""Each number of a report as a LaTeX macro, for prose: `\\TwTableThreeUniformRuler` prints what the table prints.

A name is `\\Tw` or, for what the paper prints, `\\TwPaper`, then target, row and column by their keys: words begin with a
capital, digits are spelled one by one (`ruler-32k`: `RulerThreeTwoK`), a point is `Point`. A cell without a complete
value prints an em dash.
"""

from __future__ import annotations

import re
import unicodedata

from tokenweight.latex import escape
from tokenweight.reports.display import NO_NUMBER, value_text
from tokenweight.reports.latex import number
from tokenweight.reports.model import Report

_SPELLED = dict(enumerate(["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"]))


def render(report: Report) -> str:
    """A file to `\\input` before `\\begin{document}`: ours, the paper's, or both, by the report's style."""
    what = "as the paper prints them" if report.style == "paper" else f"{report.scale} scale"
    lines = [f"% Numbers of {escape(report.target)}, {what}. In prose: \\Name{{}}. Needs \\usepackage[T1]{{fontenc}}."]
    names: set[str] = set()
    printed: set[tuple[str, str]] = set()

    def define(text: str, *keys: str) -> None:
        name = macro_name(*keys)
        while name in names:  # another cell has it
            name += "Again"
        names.add(name)
        lines.append(rf"\newcommand{{\{name}}}{{{number(text)}}}")

    for row, column, cell in report.places:
        if report.style != "paper":
            define(NO_NUMBER if cell.value is None else value_text(cell, column), report.target, row.key, column.key)
        place = (row.key, column.paper_column or "")
        if cell.paper and cell.paper.value is not None and place not in printed:  # once, beside several setups
            printed.add(place)
            define(cell.paper.printed, "paper", report.target, *place)
    return "\n".join(lines) + "\n"


def macro_name(*keys: str) -> str:
    """`Tw` and the keys of target, row and column, letters only: ("table-3", "uniform") is TwTableThreeUniform."""
    flat = unicodedata.normalize("NFKD", " ".join(keys))
    spelled = re.sub(r"(?<=\d)\.(?=\d)", " point ", flat)
    spelled = re.sub("[0-9]", lambda digit: f" {_SPELLED[int(digit[0])]} ", spelled)
    words = re.findall(r"[A-Za-z]+", spelled)
    return "Tw" + "".join(word[0].upper() + word[1:] for word in words)
