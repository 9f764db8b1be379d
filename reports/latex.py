"""A report as LaTeX: booktabs, the paper's column groups, label columns and rules.

A difference to another row is in brackets behind its value, as in Tables 5 and 11. Ours and the paper's stand one
above the other, then ours less the paper's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenweight.latex import CODE_POINTS, environment, escape
from tokenweight.reports import display
from tokenweight.reports.display import NOT_IN_PAPER, paper_text
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow

_COMMANDS: dict[Mark, str] = {"bold": r"\textbf", "italic": r"\textit", "underline": r"\underline"}
_CODE_POINTS_MEAN = "{[}U+\\ldots{]}: characters that LaTeX's T1 fonts lack, as their Unicode code points."


@dataclass(frozen=True)
class _Block:
    """Rows of the table under one heading: ours, the paper's, or their difference."""

    rows: tuple[ReportRow, ...]
    text: Callable[[Cell, ReportColumn], str]
    heading: str = ""
    of_paper: bool = False  # with the paper's labels, and its headings where its lengths are not ours
    has_sizes: bool = False  # whether the samples behind each column are counted below


def render(report: Report) -> str:
    """The table with its notes below it: a document by itself, or to `\\input` in one with booktabs and T1 fonts."""
    shown = {column.key for column in report.columns}
    # A difference to a shown column is in brackets behind it.
    columns = [(index, c) for index, c in enumerate(report.columns) if c.difference_of not in shown]
    templates = environment(Path(__file__).parent)
    # Of a label letters, digits and hyphens alone: it needs no escape in LaTeX.
    templates.filters |= {"tex": escape, "label": lambda text: re.sub(r"[^A-Za-z0-9-]+", "-", text)}
    template = templates.get_template("table.tex.jinja")
    parts: dict[str, Any] = {"report": report, "columns": columns, "blocks": _blocks(report), "cells": _cells}
    parts |= {"groups": _groups(report, [column for _, column in columns]), "display": display}
    text = template.render(parts, meaning="")
    return template.render(parts, meaning=_CODE_POINTS_MEAN) if CODE_POINTS in text else text


def number(text: str) -> str:
    """A number as printed, with a minus and not a hyphen."""
    return re.sub(r"^([+-])(?=[\d.])", r"\\ensuremath{\1}", escape(text))


def _blocks(report: Report) -> list[_Block]:
    if report.style == "paper":
        return [_Block(report.rows, _paper_cell)]
    if report.style == "ours" or all(cell.paper is None for cell in report.cells):
        return [_Block(report.rows, _our_cell, has_sizes=True)]
    rows = report.rows_of_paper
    blocks = [
        _Block(report.rows, _our_cell, f"This run, {report.scale} scale", has_sizes=True),
        _Block(rows, _paper_cell, f"The paper, {report.paper_place}", of_paper=True),
    ]
    if any(cell.less_paper is not None for cell in report.cells):
        blocks.append(_Block(rows, _less_paper_cell, "This run less the paper"))
    return blocks


def _groups(report: Report, columns: list[ReportColumn]) -> list[tuple[str, int, int]]:
    """Column groups as (name, first, last), columns counted from 1 with the stub, which may name the only group."""
    groups = []
    first = len(report.stub) + 1
    for name, members in groupby(columns, key=lambda column: column.group):
        count = len(list(members))
        groups.append(("" if name in report.stub else name, first, first + count - 1))
        first += count
    return groups


def _cells(report: Report, row: ReportRow, text: Callable[[Cell, ReportColumn], str]) -> list[str]:
    """Each column's cell, with its difference column's in brackets."""
    texts = {column.key: text(cell, column) for cell, column in zip(row.cells, report.columns, strict=True)}
    for column in report.columns:
        if column.difference_of in texts:
            shown, bracketed = texts[column.difference_of], texts.pop(column.key)
            if bracketed not in ("", NOT_IN_PAPER, shown):  # two equal dashes say no more than one
                texts[column.difference_of] = rf"{shown} {{\scriptsize({bracketed})}}"
    return list(texts.values())


def _our_cell(cell: Cell, column: ReportColumn) -> str:
    shown = _emphasised(number(display.value_text(cell, column)), cell.emphasis)
    marks = [*map(str, cell.marks), *([r"$\dagger$"] if display.is_significant(cell) else [])]
    return shown + (rf"\textsuperscript{{{','.join(marks)}}}" if marks else "")


def _paper_cell(cell: Cell, _: ReportColumn) -> str:
    return _emphasised(number(paper_text(cell)), cell.paper.emphasis if cell.paper else ())


def _less_paper_cell(cell: Cell, column: ReportColumn) -> str:
    return number(display.less_paper_text(cell, column))


def _emphasised(text: str, emphasis: tuple[Mark, ...]) -> str:
    for mark in emphasis:
        text = f"{_COMMANDS[mark]}{{{text}}}"
    return text
