"""A report as CSV in long form: one line a cell, with all that is known of it."""

from __future__ import annotations

import csv
import io

from tokenweight.reports.model import Cell, CellDifference, Report, ReportColumn, ReportRow

# Whose number it is and where it stands; ours; its difference to the baseline; the paper's; why and from what.
HEADER = (
    *("target", "scale", "style", "row", "row_group", "row_label", "recipe", "column", "column_group", "column_label"),
    *("status", "value", "ci_low", "ci_high", "spread", "n", "n_expected", "decimals", "emphasis"),
    *("baseline", "difference", "difference_low", "difference_high", "p", "p_corrected", "test", "pairs"),
    *("paper_column", "paper_value", "paper_emphasis", "less_paper"),
    *("note", "addresses"),
)


def render(report: Report) -> str:
    """Keys and labels, our value with its interval and n, the paper's number as printed; empty where there is none."""
    notes = {note.mark: note.text for note in report.notes if note.mark is not None}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    for row in report.rows:
        for column, cell in zip(report.columns, row.cells, strict=True):
            note = " ".join(notes[mark] for mark in cell.marks)
            writer.writerow(
                (
                    *(_text(report.target), report.scale, report.style),
                    *_place(row, column),
                    *_ours(cell, column),
                    *(_difference(cell.difference) if cell.difference else ("",) * 8),
                    *_paper(cell, column),
                    *(_text(note), _text(" ".join(cell.addresses))),
                )
            )
    return stream.getvalue()


def _place(row: ReportRow, column: ReportColumn) -> tuple[str, ...]:
    keys = (row.key, row.group, row.label, row.recipe, column.key, column.group, column.label)
    return tuple(map(_text, keys))


def _ours(cell: Cell, column: ReportColumn) -> tuple[str, ...]:
    n = (
        ("", "")
        if cell.status == "left_out"
        else (str(cell.n), "" if cell.n_expected is None else str(cell.n_expected))
    )
    numbers = map(_number, (cell.value, cell.ci_low, cell.ci_high, cell.spread))
    return (cell.status, *numbers, *n, str(column.decimals), " ".join(cell.emphasis))


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


def _paper(cell: Cell, column: ReportColumn) -> tuple[str, ...]:
    if cell.paper is None:
        return ("",) * 4
    printed = _text(cell.paper.printed) if cell.paper.value is None else cell.paper.printed
    less_paper = "" if cell.less_paper is None else f"{cell.less_paper:.{column.decimals}f}"
    return (_text(column.paper_column or ""), printed, " ".join(cell.paper.emphasis), less_paper)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _text(text: str) -> str:
    """On one line, and never a formula when a spreadsheet opens the file."""
    flat = " ".join(text.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat
