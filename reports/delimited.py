"""A report as CSV in long form: one line per cell."""

from __future__ import annotations

import csv
import io

from tokenweight.reports.display import NOT_IN_PAPER
from tokenweight.reports.model import Cell, CellDifference, Report

HEADER = (
    "row",
    "column",
    "value",
    "ci_low",
    "ci_high",
    "spread",
    "n",
    "n_expected",
    "status",
    "baseline",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_corrected",
    "test",
    "pairs",
    "paper_value",
    "paper_emphasis",
    "note",
)


def render(report: Report) -> str:
    """Keys, our value with its interval and n, and the paper's number as printed; empty where there is none."""
    notes = {note.mark: note.text for note in report.notes if note.mark is not None}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    for row in report.rows:
        for column, cell in zip(report.columns, row.cells, strict=True):
            writer.writerow((_text(row.key), _text(column.key), *_numbers(cell), _note(cell, notes)))
    return stream.getvalue()


def _numbers(cell: Cell) -> tuple[str, ...]:
    paper = cell.paper if cell.paper and cell.paper.printed != NOT_IN_PAPER else None
    return (
        _number(cell.value),
        _number(cell.ci_low),
        _number(cell.ci_high),
        _number(cell.spread),
        str(cell.n),
        "" if cell.n_expected is None else str(cell.n_expected),
        cell.status,
        *(_difference(cell.difference) if cell.difference else ("",) * 8),
        paper.printed if paper else "",
        " ".join(paper.emphasis) if paper else "",
    )


def _difference(difference: CellDifference) -> tuple[str, ...]:
    return (
        _text(difference.baseline),
        _number(difference.value),
        _number(difference.ci_low),
        _number(difference.ci_high),
        "" if difference.p is None else f"{difference.p:.3g}",
        "" if difference.p_corrected is None else f"{difference.p_corrected:.3g}",
        _text(difference.test or difference.reason or ""),
        str(difference.n),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _note(cell: Cell, notes: dict[int, str]) -> str:
    return _text(" ".join(notes[mark] for mark in cell.marks))


def _text(text: str) -> str:
    """On one line, and never a formula when a spreadsheet opens the file."""
    flat = " ".join(text.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat
