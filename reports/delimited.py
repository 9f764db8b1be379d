"""A report as CSV in long form: one line a cell, with all that is known of it."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow

# Whose number it is and in which row and column; ours; its difference to the baseline; the paper's; why and from what.
HEADER = (
    *("target", "scale", "style", "row", "row_group", "row_label", "recipe", "column", "column_group", "column_label"),
    *("status", "value", "ci_low", "ci_high", "spread", "n", "n_expected", "decimals", "emphasis"),
    *("baseline", "difference", "difference_low", "difference_high", "p", "p_corrected", "test", "pairs"),
    *("paper_column", "paper_value", "paper_emphasis", "less_paper"),
    *("note", "addresses"),
)
_NUMBER = re.compile(r"[+-]?[0-9.]+(e-?[0-9]+)?")


def render(report: Report) -> str:
    """Keys and labels, our value with its interval and n, the paper's number as printed; empty where there is none."""
    notes = {note.mark: note.text for note in report.notes}
    lines = []
    for row, column, cell in report.places:
        line = {"target": report.target, "scale": report.scale, "style": report.style, **_line(row, column, cell)}
        line["note"] = " ".join(notes[mark] for mark in cell.marks)
        lines.append({name: _text(value) for name, value in line.items()})
    return pd.DataFrame(lines, columns=HEADER).to_csv(index=False, lineterminator="\n")


def _line(row: ReportRow, column: ReportColumn, cell: Cell) -> dict[str, Any]:
    line: dict[str, Any] = {"row": row.key, "row_group": row.group, "row_label": row.label, "recipe": row.recipe}
    line |= {"column": column.key, "column_group": column.group, "column_label": column.label}
    line |= {name: getattr(cell, name) for name in ("status", "value", "ci_low", "ci_high", "spread")}
    line |= {"decimals": column.decimals, "emphasis": " ".join(cell.emphasis), "addresses": " ".join(cell.addresses)}
    if cell.status != "left_out":
        line |= {"n": cell.n, "n_expected": cell.n_expected}
    if difference := cell.difference:
        line |= {"baseline": difference.baseline, "difference": difference.value, "pairs": difference.n}
        line |= {"difference_low": difference.ci_low, "difference_high": difference.ci_high}
        line |= {name: f"{p:.3g}" for name in ("p", "p_corrected") if (p := getattr(difference, name)) is not None}
        line["test"] = difference.test or difference.reason
    if paper := cell.paper:
        line |= {"paper_column": column.paper_column, "paper_emphasis": " ".join(paper.emphasis)}
        line["paper_value"] = paper.printed
    if cell.less_paper is not None:
        line["less_paper"] = f"{cell.less_paper:.{column.decimals}f}"
    return line


def _text(value: object) -> str:
    """On one line, and never a formula when a spreadsheet opens the file; numbers with six decimals."""
    if not isinstance(value, str):
        return f"{value:.6f}" if isinstance(value, float) else "" if value is None else str(value)
    flat = " ".join(value.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") and not _NUMBER.fullmatch(flat) else flat
