"""Whose numbers a report shows: ours, the paper's as it prints them, or both with their difference."""

from __future__ import annotations

import re
from collections.abc import Callable

from tokenweight.errors import UserError
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow, Style


def styled(report: Report, style: Style) -> Report:
    """The report in a style. UserError for the paper's alone where the paper prints no such numbers."""
    if style == "ours":
        return _ours(report)
    if style == "both":
        return _both(report)
    if not any(cell.paper for cell in report.cells):
        raise UserError(f"--style paper: the paper prints no numbers of {report.target}; use --style ours")
    return _paper(report)


def rows_of_paper(report: Report) -> tuple[ReportRow, ...]:
    """The rows that the paper has too, with its rules between them."""
    rows: list[ReportRow] = []
    for row in report.rows:
        if any(cell.paper for cell in row.cells):
            rows.append(row)
        elif rows and row.rule_below:  # a row that the paper lacks may be the last above a rule
            rows[-1] = rows[-1].model_copy(update={"rule_below": row.rule_below})
    return tuple(rows)


def _with_cells(report: Report, change: Callable[[Cell, ReportColumn], Cell]) -> tuple[ReportRow, ...]:
    return tuple(row.model_copy(update={"cells": tuple(map(change, row.cells, report.columns))}) for row in report.rows)


def _ours(report: Report) -> Report:
    rows = _with_cells(report, lambda cell, _: cell.model_copy(update={"paper": None}))
    statistics = tuple(statistic.model_copy(update={"paper": None}) for statistic in report.statistics)
    return report.model_copy(update={"style": "ours", "rows": rows, "statistics": statistics})


def _both(report: Report) -> Report:
    return report.model_copy(update={"style": "both", "rows": _with_cells(report, _with_less_paper)})


def _with_less_paper(cell: Cell, column: ReportColumn) -> Cell:
    """As printed, so that the three numbers of a cell add up; an incomplete cell has no difference."""
    if cell.value is None or cell.paper is None or cell.paper.value is None:
        return cell
    difference = round(round(cell.value, column.decimals) - cell.paper.value, column.decimals)
    return cell.model_copy(update={"less_paper": difference})


def _paper(report: Report) -> Report:
    """The rows and columns that the paper has, each once, with its headings, numbers and emphasis; nothing measured."""
    first_of: dict[str | None, int] = {}
    for index, column in enumerate(report.columns):
        if any(row.cells[index].paper for row in report.rows):
            first_of.setdefault(column.paper_column, index)
    kept = list(first_of.values())
    columns = (report.columns[index] for index in kept)
    rows = tuple(
        row.model_copy(
            update={
                "label": row.paper_label,
                "cells": tuple(Cell(status="left_out", paper=row.cells[index].paper) for index in kept),
            }
        )
        for row in rows_of_paper(report)
    )
    return report.model_copy(
        update={
            "style": "paper",
            "columns": tuple(c.model_copy(update={"label": c.paper_label or c.label}) for c in columns),
            "rows": rows,
            "seeds": 1,
            "baseline": None,
            "emphasis": re.sub(r" \(.*?\)", "", report.emphasis),  # in brackets are rows by our names
            "notes": (),
            "statistics": tuple(s.model_copy(update={"value": None}) for s in report.statistics),
            "findings": (),
        }
    )
