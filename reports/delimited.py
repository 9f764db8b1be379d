"""A report as CSV in long form: one line a cell, with all that is known of it; over several seeds one more for each."""

import re
from typing import Any

import pandas as pd

from tokenweight.reports.model import Report

_NUMBER = re.compile(r"[+-]?[0-9.]+(e-?[0-9]+)?")


def render(report: Report) -> str:
    """Keys and labels, our value with its interval and n, the paper's number; empty where there is none."""
    notes = {note.mark: note.text for note in report.notes}
    lines = []
    for row, column, cell in report.places:
        difference, paper, is_left_out = cell.difference, cell.paper, cell.status == "left_out"
        # Whose number it is and in which row and column; ours; its difference to the baseline; the paper's; why, from what.
        keys: dict[str, Any] = {"target": report.target, "scale": report.scale, "style": report.style}
        keys |= {"row": row.key, "row_group": row.group, "row_label": row.label, "recipe": row.recipe}
        keys |= {"column": column.key, "column_group": column.group, "column_label": column.label}
        keys["decimals"] = column.decimals
        line = keys | {name: getattr(cell, name) for name in ("status", "value", "ci_low", "ci_high", "spread")}
        line |= {name: None if is_left_out else getattr(cell, name) for name in ("n", "n_expected")}
        line["emphasis"] = " ".join(cell.emphasis)
        line |= {"baseline": difference and difference.baseline, "difference": difference and difference.value}
        line |= {f"difference_{end}": getattr(difference, f"ci_{end}", None) for end in ("low", "high")}
        line |= {name: _formatted(getattr(difference, name, None), ".3g") for name in ("p", "p_corrected")}
        line |= {"test": difference and (difference.test or difference.reason), "pairs": difference and difference.n}
        line |= {"paper_column": paper and column.paper_column, "paper_printed": paper and paper.printed}
        line["paper_value"] = _formatted(paper.value, f".{paper.decimals}f") if paper else None
        line["paper_emphasis"] = paper and " ".join(paper.emphasis)
        line["less_paper"] = _formatted(cell.less_paper, f".{column.decimals}f")
        line |= {"note": " ".join(notes[mark] for mark in cell.marks), "seed": None}
        artifacts = row.artifacts or (None,) * max(1, len(cell.by_seed))
        lines.append(line | {"artifact": None if cell.by_seed else artifacts[0]})
        seeds = enumerate(zip(cell.by_seed, artifacts, strict=False))
        lines += (keys | {"value": value, "seed": seed, "artifact": artifact} for seed, (value, artifact) in seeds)
    return pd.DataFrame(lines, dtype=object).map(_text).to_csv(index=False, lineterminator="\n")


def _formatted(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _text(value: Any) -> str:
    """On one line, and never a formula when a spreadsheet opens the file; numbers with six decimals."""
    if not isinstance(value, str):
        return "" if pd.isna(value) else f"{value:.6f}" if isinstance(value, float) else str(value)
    flat = " ".join(value.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") and not _NUMBER.fullmatch(flat) else flat
