"""A report as LaTeX: booktabs, the paper's column groups, label columns and rules (table.tex.jinja).

A difference to another row is in brackets behind its value, as in Tables 5 and 11. Ours and the paper's stand one
above the other, then ours less the paper's.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenweight.latex import CODE_POINTS, environment, escape
from tokenweight.reports import display
from tokenweight.reports.model import Report

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
    groups = [(name, len(list(members))) for name, members in groupby(columns, key=lambda place: place[1].group)]
    templates = environment(Path(__file__).parent)
    # Of a label letters, digits and hyphens alone: it needs no escape in LaTeX.
    label = re.compile(r"[^A-Za-z0-9-]+")
    templates.filters |= {"tex": escape, "number": number, "label": lambda text: label.sub("-", text)}
    template = templates.get_template("table.tex.jinja")
    parts: dict[str, Any] = {"report": report, "columns": columns, "display": display}
    # The stub may name the only group.
    parts["groups"] = [("" if name in report.stub else name, count) for name, count in groups]
    text = template.render(parts, meaning="")
    return template.render(parts, meaning=_CODE_POINTS_MEAN) if CODE_POINTS in text else text


def number(text: str) -> str:
    """A number as printed, with a minus and not a hyphen."""
    return re.sub(r"^([+-])(?=[\d.])", r"\\ensuremath{\1}", escape(text))
