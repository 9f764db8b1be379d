"""A report as LaTeX: booktabs, the paper's column groups and rules, our rows above the paper's.

The fragment needs `\\usepackage{booktabs,graphicx}`; `standalone` wraps it into a document of its own.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tokenweight.reports.display import (
    SIGNIFICANT,
    column_n_text,
    finding_texts,
    has_differences,
    is_significant,
    legend,
    number_text,
    spread_text,
    statistic_texts,
    test_legend,
    value_text,
)
from tokenweight.reports.model import Cell, Mark, PaperNumber, Report, ReportColumn, ReportRow

_WIDE_COLUMNS = 6  # more than these need both text columns

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': "''",
    "[": r"{[}",  # after \\ it would begin an optional argument
    "]": r"{]}",
    "*": r"{*}",  # likewise
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "—": "---",
    "–": "--",
    "…": r"\ldots{}",
    "’": "'",
}
_LIGATURES = re.compile(r"(?<=[-,'])(?=[-,'])")  # -- would print as a dash, '' and ,, as quotation marks
_KEEP_APART = "\0"
_COMMANDS: dict[Mark, str] = {"bold": r"\textbf", "italic": r"\textit", "underline": r"\underline"}


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, on one line; a letter beyond Latin is spelled as its code point."""
    flat = _LIGATURES.sub(_KEEP_APART, " ".join(text.split()))
    return "".join("{}" if c == _KEEP_APART else _ESCAPES.get(c) or _plain(c) for c in flat)


def _plain(character: str) -> str:
    if re.match(r"[\x20-\x7e]|[À-ž]", character):
        return character
    return f"{{[}}U+{ord(character):04X}{{]}}"


def render(report: Report) -> str:
    """The table as a fragment to `\\input`, with its notes below it."""
    width = len(report.stub) + len(report.columns)
    return (
        _environment()
        .get_template("table.tex.jinja")
        .render(
            report=report,
            environment="table*" if len(report.columns) > _WIDE_COLUMNS else "table",
            width=width,
            group_headings=_group_headings(report),
            group_rules=_group_rules(report),
            headings=" & ".join(map(escape, (*report.stub, *(column.label for column in report.columns)))),
            ours=_rows(report, [row.label for row in report.rows], [_our_cells(report, row) for row in report.rows]),
            paper=_rows(report, [row.paper_label for row in report.rows], [_paper_cells(row) for row in report.rows]),
            sizes=" & ".join(escape(column_n_text(report, index)) for index in range(len(report.columns))),
            paper_headings=_paper_headings(report),
            legend=legend(report, "Lower part"),
            statistics=(*statistic_texts(report), *finding_texts(report)),
            notes=report.notes,
            significance=_significance(report),
        )
    )


def _significance(report: Report) -> str | None:
    """What a dagger means, where rows are compared with a baseline."""
    if not has_differences(report):
        return None
    return f"differs from {report.baseline} with a corrected p below {SIGNIFICANT}. {test_legend(report)}"


def standalone(*reports: Report) -> str:
    """A document that holds the tables alone, for a look at them."""
    return _environment().get_template("standalone.tex.jinja").render(tables=[render(report) for report in reports])


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters["tex"] = escape
    return environment


def _our_cells(report: Report, row: ReportRow) -> list[str]:
    return [_our_cell(cell, column) for cell, column in zip(row.cells, report.columns, strict=True)]


def _paper_cells(row: ReportRow) -> list[str]:
    return [_paper_cell(cell.paper) for cell in row.cells]


def _paper_headings(report: Report) -> str | None:
    """The paper's own headings, where its lengths are not ours."""
    labels = [column.paper_label or "" for column in report.columns]
    if labels == [column.label for column in report.columns]:
        return None
    return " & ".join([*("" for _ in report.stub), *map(escape, labels)])


def _groups(report: Report) -> list[tuple[str, int, int]]:
    """Column groups as (name, first, last), columns counted from 1 with the stub."""
    groups = []
    first = len(report.stub) + 1
    for name, members in groupby(report.columns, key=lambda column: column.group):
        count = len(list(members))
        groups.append((name, first, first + count - 1))
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


def _rows(report: Report, row_labels: list[str], body: list[list[str]]) -> list[str]:
    """Lines of the table's body; a group's name stands in its first row only, rules as in the paper."""
    width = len(report.stub) + len(report.columns)
    lines = []
    previous = None
    for row, label, cells in zip(report.rows, row_labels, body, strict=True):
        labels = [escape(label)]
        if len(report.stub) == 2:
            labels.insert(0, "" if row.group == previous and row.group != "-" else escape(row.group))
        previous = row.group
        lines.append(" & ".join([*labels, *cells]) + r" \\")
        if row is not report.rows[-1] and row.rule_below == "full":
            lines.append(r"\midrule")
        if row is not report.rows[-1] and row.rule_below == "partial":
            lines.append(rf"\cmidrule(l){{{len(report.stub)}-{width}}}")
    return lines


def _our_cell(cell: Cell, column: ReportColumn) -> str:
    text = escape(value_text(cell, column))
    if cell.value is not None and column.signed:
        text = f"${number_text(cell.value, column)}$" + escape(spread_text(cell, column))
    for mark in cell.emphasis:
        text = f"{_COMMANDS[mark]}{{{text}}}"
    marks = [*map(str, cell.marks), *([r"$\dagger$"] if is_significant(cell) else [])]
    if marks:
        text += rf"\textsuperscript{{{','.join(marks)}}}"
    return text


def _paper_cell(number: PaperNumber | None) -> str:
    if number is None:
        return ""
    text = f"${number.printed}$" if number.printed[0] in "+-" and number.value is not None else escape(number.printed)
    for mark in number.emphasis:
        text = f"{_COMMANDS[mark]}{{{text}}}"
    return text
