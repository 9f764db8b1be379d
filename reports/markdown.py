"""A report as Markdown (GitHub's tables; also the artifact that Prefect shows)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tokenweight.reports.display import (
    SIGNIFICANT,
    column_n_text,
    difference_legend,
    difference_text,
    finding_texts,
    interval_legend,
    interval_text,
    is_significant,
    legend,
    less_paper_text,
    n_text,
    paper_beside,
    paper_text,
    statistic_texts,
    value_text,
)
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow

_SPECIAL = re.compile(r"([\\`*_\[\]<|~$#])")
_BLOCK_START = re.compile(r"^([-+>]|\d+(?=[.)]))")
_EMPHASIS: dict[Mark, tuple[str, str]] = {"underline": ("<u>", "</u>"), "italic": ("*", "*"), "bold": ("**", "**")}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line, inside a table cell or out of it."""
    flat = " ".join(text.split()).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", flat)


def render(report: Report) -> str:
    """The whole report: values, in style both with the paper's and the difference in brackets, intervals, notes."""
    ours = report.style != "paper"
    general = [note.text for note in report.notes if note.mark is None]
    parts = [
        f"## {escape(report.heading)}",
        escape(("" if report.style == "paper" else f"Scale: {report.scale}. ") + legend(report, "In brackets")),
        _table(report, lambda *pair: _value(report, *pair), with_n=ours),
        *([_list(statistic_texts(report))] if report.statistics else []),
        *(["### Findings of the paper", _list(finding_texts(report))] if report.findings else []),
        *(["### Notes"] if report.notes else []),
        *([_list(general)] if general else []),
        *(f"{_superscript(note.mark)} {escape(note.text)}" for note in report.notes if note.mark is not None),
        *_intervals(report),
        *_differences(report),
    ]
    return "\n\n".join(parts) + "\n"


def _intervals(report: Report) -> list[str]:
    """A second table with the cells' intervals, where there are any or a test makes up for them."""
    if all(cell.ci_low is None and cell.difference is None for cell in report.cells):
        return []
    return [
        "### 95 % intervals and samples",
        escape(interval_legend()),
        _table(report, _interval, with_n=False),
    ]


def _differences(report: Report) -> list[str]:
    """A third table with the cells' differences to their baseline, of the rows that have any."""
    compared = tuple(row for row in report.rows if any(cell.difference for cell in row.cells))
    if not compared:
        return []
    report = report.model_copy(update={"rows": compared})
    return [
        f"### Differences to {escape(report.baseline or '')}: difference [95 % interval], p corrected",
        f"{escape(difference_legend(report))} **Bold**: p below {SIGNIFICANT}.",
        _table(report, _difference, with_n=False),
    ]


def _difference(cell: Cell, column: ReportColumn) -> str:
    text = escape(difference_text(cell, column))
    return f"**{text}**" if is_significant(cell) else text


def _table(report: Report, text: Callable[[Cell, ReportColumn], str], *, with_n: bool) -> str:
    headings = [column.name for column in report.columns]
    lines = [
        line([*map(escape, report.stub), *map(escape, headings)]),
        line([*("---" for _ in report.stub), *("---:" for _ in headings)]),
        *(line([*_labels(report, row), *map(text, row.cells, report.columns)]) for row in report.rows),
    ]
    if with_n:
        sizes = (column_n_text(report, index) for index in range(len(report.columns)))
        lines.append(line(["n", *("" for _ in report.stub[1:]), *sizes]))
    return "\n".join(lines)


def _labels(report: Report, row: ReportRow) -> list[str]:
    labels = [row.group, row.label] if len(report.stub) == 2 else [row.label]
    return [escape(label) for label in labels]


def _value(report: Report, cell: Cell, column: ReportColumn) -> str:
    if report.style == "paper":
        return _emphasised(escape(paper_text(cell)), cell.paper.emphasis if cell.paper else ())
    text = value_text(cell, column)
    if cell.status == "not_in_paper":
        return text
    text = _emphasised(text, cell.emphasis) + "˒".join(_superscript(mark) for mark in cell.marks)
    if not paper_beside(cell):
        return text
    beside = [escape(paper_beside(cell)), *([] if cell.less_paper is None else [less_paper_text(cell, column)])]
    return f"{text} ({', '.join(beside)})"


def _emphasised(text: str, emphasis: tuple[Mark, ...]) -> str:
    for mark, (begin, end) in _EMPHASIS.items():
        if mark in emphasis:
            text = f"{begin}{text}{end}"
    return text


def _interval(cell: Cell, column: ReportColumn) -> str:
    return " ".join(filter(None, (interval_text(cell, column), n_text(cell))))


def _superscript(mark: int | None) -> str:
    return str(mark).translate(_SUPERSCRIPTS)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_BLOCK_START.sub(_escape_start, escape(text))}" for text in texts)


def _escape_start(match: re.Match[str]) -> str:
    """What would begin a list, quotation or heading at the start of a line."""
    return f"{match[1]}\\" if match[1].isdigit() else f"\\{match[1]}"


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"
