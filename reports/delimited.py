"""A report as CSV in long form: one line per cell."""

from __future__ import annotations

import csv
import io

from tokenweight.reports.model import Cell, Report

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
    paper = cell.paper if cell.paper and cell.paper.value is not None else None
    return (
        _number(cell.value),
        _number(cell.ci_low),
        _number(cell.ci_high),
        _number(cell.spread),
        str(cell.n),
        "" if cell.n_expected is None else str(cell.n_expected),
        cell.status,
        paper.printed if paper else "",
        " ".join(paper.emphasis) if paper else "",
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _note(cell: Cell, notes: dict[int, str]) -> str:
    return _text(" ".join(notes[mark] for mark in cell.marks))


def _text(text: str) -> str:
    """On one line, and never a formula when a spreadsheet opens the file."""
    flat = " ".join(text.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat
