"""A report as LaTeX: booktabs, the paper's column groups, label columns and rules.

A difference to another row stands in brackets behind its value, as in Tables 5 and 11. Ours and the paper's stand one
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
from tokenweight.reports.display import (
    NOT_IN_PAPER,
    SIGNIFICANT,
    column_n_text,
    finding_texts,
    has_differences,
    is_significant,
    legend,
    less_paper_text,
    paper_text,
    statistic_texts,
    test_legend,
    value_text,
)
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow
from tokenweight.reports.styles import rows_of_paper

_WIDE_COLUMNS = 6
_LANDSCAPE_COLUMNS = 13
_COMMANDS: dict[Mark, str] = {"bold": r"\textbf", "italic": r"\textit", "underline": r"\underline"}
_CODE_POINTS_MEAN = "{[}U+\\ldots{]}: characters that LaTeX's T1 fonts lack, as their Unicode code points."

CellText = Callable[[Cell, ReportColumn], str]


@dataclass(frozen=True)
class _Block:
    """Rows of the table under one heading: ours, the paper's, or their difference."""

    heading: str
    lines: list[str]
    headings: str = ""  # the paper's own, where its lengths are not ours
    sizes: str = ""  # samples behind each column


def render(report: Report) -> str:
    """The table with its notes below it: a document by itself, or to `\\input` in one with booktabs and T1 fonts."""
    columns, blocks = _columns(report), _blocks(report)
    parts: dict[str, Any] = {
        "place": escape(report.paper_place or report.target),
        "scale": report.scale,
        # What is too wide for one of two text columns, and what would be too high with its notes below it.
        "environment": "table*" if len(columns) > _WIDE_COLUMNS or len(blocks) > 1 else "table",
        "page": "a4paper,landscape" if len(columns) > _LANDSCAPE_COLUMNS else "a4paper",
        "stub": "l" * len(report.stub),
        "width": len(report.stub) + len(columns),
        "alignment": ("l" if len(columns) < len(report.columns) else "c") * len(columns),
        "group_headings": _group_headings(report),
        "group_rules": _group_rules(report),
        "headings": " & ".join(map(escape, (*report.stub, *(column.label for _, column in columns)))),
        "blocks": blocks,
        "caption": _caption(report),
        "label": _label(report),
        "below": _below(report),
    }
    if CODE_POINTS in repr(parts):
        parts["below"].append(_CODE_POINTS_MEAN)
    return environment(Path(__file__).parent).get_template("table.tex.jinja").render(parts)


def number(text: str) -> str:
    """A number as printed, with a minus and not a hyphen."""
    return re.sub(r"^([+-])(?=[\d.])", r"\\ensuremath{\1}", escape(text))


def _columns(report: Report) -> list[tuple[int, ReportColumn]]:
    """Columns of the table with their places; a difference to a shown column stands in brackets, not in its own."""
    shown = {column.key for column in report.columns}
    return [(index, c) for index, c in enumerate(report.columns) if c.difference_of not in shown]


def _blocks(report: Report) -> list[_Block]:
    ours = _Block("", _lines(report, _our_cell), sizes=_sizes(report))
    if report.style == "paper":
        return [_Block("", _lines(report, _paper_cell))]
    if report.style == "ours" or all(cell.paper is None for cell in report.cells):
        return [ours]
    papers = report.model_copy(update={"rows": rows_of_paper(report)})
    run, place = f"This run, {report.scale} scale", escape(f"The paper, {report.paper_place}")
    blocks = [
        _Block(run, ours.lines, sizes=ours.sizes),
        _Block(place, _lines(papers, _paper_cell, paper_labels=True), _paper_headings(report)),
    ]
    if any(cell.less_paper is not None for cell in report.cells):
        blocks.append(_Block("This run less the paper", _lines(papers, _less_paper_cell)))
    return blocks


def _caption(report: Report) -> str:
    scale = "" if report.style == "paper" else f", {report.scale} scale"
    return escape(f"{report.title}{scale}. {legend(report, 'Lower parts')}")


def _label(report: Report) -> str:
    """Letters, digits and hyphens alone: it stands in LaTeX as it is."""
    end = "paper-printed" if report.style == "paper" else report.scale
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{report.target}-{end}")


def _below(report: Report) -> list[str]:
    """Lines below the caption: the caption's own numbers, findings, what a dagger means, notes."""
    lines = [escape(text) for text in (*statistic_texts(report), *finding_texts(report))]
    if has_differences(report):
        means = f"differs from {report.baseline} with a corrected p below {SIGNIFICANT}. {test_legend(report)}"
        lines.append(rf"\textsuperscript{{$\dagger$}}{escape(means)}")
    # As running text: one line each would make a float with many notes higher than a page.
    lines.append(" ".join(escape(note.text) for note in report.notes if note.mark is None))
    numbered = [note for note in report.notes if note.mark is not None]
    lines.append(" \\quad\n".join(rf"\textsuperscript{{{note.mark}}}{escape(note.text)}" for note in numbered))
    return [line for line in lines if line]


def _paper_headings(report: Report) -> str:
    columns = _columns(report)
    labels = [column.paper_label or "" for _, column in columns]
    if labels == [column.label for _, column in columns]:
        return ""
    return " & ".join([*("" for _ in report.stub), *map(escape, labels)])


def _sizes(report: Report) -> str:
    sizes = (escape(column_n_text(report, index)) for index, _ in _columns(report))
    return " & ".join(["n", *("" for _ in report.stub[1:]), *sizes])


def _groups(report: Report) -> list[tuple[str, int, int]]:
    """Column groups as (name, first, last), columns counted from 1 with the stub, which may name the only group."""
    groups = []
    first = len(report.stub) + 1
    for name, members in groupby(_columns(report), key=lambda member: member[1].group):
        count = len(list(members))
        groups.append(("" if name in report.stub else name, first, first + count - 1))
        first += count
    return groups


def _group_headings(report: Report) -> str | None:
    groups = _groups(report)
    if not any(name for name, _, _ in groups):
        return None
    spans = [rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape(name)}}}" for name, first, last in groups]
    return " & ".join([*("" for _ in report.stub), *spans])


def _group_rules(report: Report) -> str:
    return " ".join(rf"\cmidrule(lr){{{first}-{last}}}" for name, first, last in _groups(report) if name)


def _lines(report: Report, text: CellText, *, paper_labels: bool = False) -> list[str]:
    """Lines of the table's body; a group's name stands in its first row only, rules as in the paper."""
    width = len(report.stub) + len(_columns(report))
    lines = []
    previous = None
    for row in report.rows:
        labels = [escape(row.paper_label if paper_labels else row.label)]
        if len(report.stub) == 2:
            labels.insert(0, "" if row.group == previous and row.group != "-" else escape(row.group))
        previous = row.group
        lines.append(" & ".join([*labels, *_cells(report, row, text)]) + r" \\")
        if row is not report.rows[-1] and row.rule_below == "full":
            lines.append(r"\midrule")
        if row is not report.rows[-1] and row.rule_below == "partial":
            lines.append(rf"\cmidrule(l){{{len(report.stub)}-{width}}}")
    return lines


def _cells(report: Report, row: ReportRow, text: CellText) -> list[str]:
    """Each column's cell, with its difference column's in brackets."""
    differences = {
        column.difference_of: text(cell, column)
        for cell, column in zip(row.cells, report.columns, strict=True)
        if column.difference_of
    }
    cells = []
    for index, column in _columns(report):
        shown = text(row.cells[index], column)
        bracketed = differences.get(column.key)
        empty = bracketed in (None, "", NOT_IN_PAPER, shown)  # two equal dashes say no more than one
        cells.append(shown if empty else rf"{shown} {{\scriptsize({bracketed})}}")
    return cells


def _our_cell(cell: Cell, column: ReportColumn) -> str:
    shown = _emphasised(number(value_text(cell, column)), cell.emphasis)
    marks = [*map(str, cell.marks), *([r"$\dagger$"] if is_significant(cell) else [])]
    return shown + (rf"\textsuperscript{{{','.join(marks)}}}" if marks else "")


def _paper_cell(cell: Cell, column: ReportColumn) -> str:
    return _emphasised(number(paper_text(cell)), cell.paper.emphasis if cell.paper else ())


def _less_paper_cell(cell: Cell, column: ReportColumn) -> str:
    return number(less_paper_text(cell, column))


def _emphasised(text: str, emphasis: tuple[Mark, ...]) -> str:
    for mark in emphasis:
        text = f"{_COMMANDS[mark]}{{{text}}}"
    return text
