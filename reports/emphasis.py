"""Bold, italic and underline by the paper's rules, from values as printed. An incomplete column is not judged.

The italics of a value that the caption sets apart say that it is not considered: they compare nothing and stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tokenweight.pipeline.experiment import Emphasis
from tokenweight.reports.model import Mark


def emphasise(
    rule: Emphasis, paper_column: str | None, values: Mapping[str, float | None], decimals: int
) -> tuple[dict[str, tuple[Mark, ...]], tuple[str, ...]]:
    """Marks of one column by row, and the rows for want of whose value it could not be judged (none where it could).

    `values` are the competing rows in order (cells that the table leaves empty are not in it), None
    where a value is missing. Ties in print share the mark.
    """
    apart = {row for row in values if (row, paper_column) in rule.set_apart}
    marks: dict[str, tuple[Mark, ...]] = {row: ("italic",) for row in apart if values[row] is not None}
    printed = {row: round(value, decimals) for row, value in values.items() if value is not None and row not in apart}
    missing = tuple(row for row, value in values.items() if value is None and row not in apart)
    if not printed or not (rule.bold or rule.italic or rule.underline_above_row):
        return marks, ()
    if missing:
        return marks, missing
    best = {"largest": max(printed.values()), "smallest": min(printed.values())}
    bar = printed.get(rule.underline_above_row or "", math.inf)
    for row, value in printed.items():
        holds: dict[Mark, bool] = {
            "bold": rule.bold is not None and value == best[rule.bold],
            "italic": rule.italic is not None and value == best[rule.italic],
            "underline": value > bar,
        }
        if any(holds.values()):
            marks[row] = tuple(mark for mark, held in holds.items() if held)
    return marks, ()
