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
    writer = csv.DictWriter(stream, HEADER, restval="", lineterminator="\n")
    writer.writeheader()
    for row, column, cell in report.places:
        writer.writerow(
            {"target": _text(report.target), "scale": report.scale, "style": report.style}
            | _ours(row, column, cell)
            | (_difference(cell.difference) if cell.difference else {})
            | _paper(column, cell)
            | {
                "note": _text(" ".join(notes[mark] for mark in cell.marks)),
                "addresses": _text(" ".join(cell.addresses)),
            }
        )
    return stream.getvalue()


def _ours(row: ReportRow, column: ReportColumn, cell: Cell) -> dict[str, object]:
    keys = {"row": row.key, "row_group": row.group, "row_label": row.label, "recipe": row.recipe}
    keys |= {"column": column.key, "column_group": column.group, "column_label": column.label}
    line: dict[str, object] = {name: _text(key) for name, key in keys.items()}
    line |= {name: _number(getattr(cell, name)) for name in ("value", "ci_low", "ci_high", "spread")}
    line |= {"status": cell.status, "decimals": column.decimals, "emphasis": " ".join(cell.emphasis)}
    if cell.status != "left_out":
        line |= {"n": cell.n, "n_expected": cell.n_expected}
    return line


def _difference(difference: CellDifference) -> dict[str, object]:
    return {
        "baseline": _text(difference.baseline),
        "difference": _number(difference.value),
        "difference_low": _number(difference.ci_low),
        "difference_high": _number(difference.ci_high),
        "p": "" if difference.p is None else f"{difference.p:.3g}",
        "p_corrected": "" if difference.p_corrected is None else f"{difference.p_corrected:.3g}",
        "test": _text(difference.test or difference.reason or ""),
        "pairs": difference.n,
    }


def _paper(column: ReportColumn, cell: Cell) -> dict[str, object]:
    if cell.paper is None:
        return {}
    return {
        "paper_column": _text(column.paper_column or ""),
        "paper_value": _text(cell.paper.printed) if cell.paper.value is None else cell.paper.printed,
        "paper_emphasis": " ".join(cell.paper.emphasis),
        "less_paper": "" if cell.less_paper is None else f"{cell.less_paper:.{column.decimals}f}",
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _text(text: str) -> str:
    """On one line, and never a formula when a spreadsheet opens the file."""
    flat = " ".join(text.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat
