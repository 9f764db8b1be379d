"""A report as CSV in long form: one line a cell, with all that is known of it."""

from __future__ import annotations

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
_FLOATS = ("value", "ci_low", "ci_high", "spread", "difference", "difference_low", "difference_high")
_COUNTS = ("n", "n_expected", "pairs")
_AS_PRINTED = ("p", "p_corrected", "less_paper", "paper_value")  # texts of numbers


def render(report: Report) -> str:
    """Keys and labels, our value with its interval and n, the paper's number as printed; empty where there is none."""
    notes = {note.mark: note.text for note in report.notes if note.mark is not None}
    lines = [
        {"target": report.target, "scale": report.scale, "style": report.style}
        | _line(*place)
        | {"note": " ".join(notes[mark] for mark in place[2].marks)}
        for place in report.places
    ]
    frame = pd.DataFrame(lines, columns=list(HEADER)).astype(dict.fromkeys(_COUNTS, "Int64"))
    frame = frame.astype(dict.fromkeys(_FLOATS, float))
    texts = [name for name in HEADER if name not in (*_FLOATS, *_COUNTS, *_AS_PRINTED, "decimals")]
    frame[texts] = frame[texts].map(_text)
    return frame.to_csv(index=False, float_format="%.6f", lineterminator="\n")


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
        line["paper_value"] = _text(paper.printed) if paper.value is None else paper.printed
    if cell.paper and cell.less_paper is not None:
        line["less_paper"] = f"{cell.less_paper:.{column.decimals}f}"
    return line


def _text(text: Any) -> str:
    """On one line, and never a formula when a spreadsheet opens the file."""
    flat = " ".join(text.split()) if isinstance(text, str) else ""
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat
