"""Two protocols never share a column: compare the records behind it, and say where they disagree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenweight.reports.units import UnitResult

# Row -> that row's units of one column.
ColumnUnits = Mapping[str, list[UnitResult]]


def disagreement(column: ColumnUnits, *, same_questions: bool = True) -> str | None:
    """Why the rows of a column cannot be compared, or None where they can.

    Compared for each unit over all rows that hold it: protocol, stage version, digests of raw data,
    and, with `same_questions`, between complete units which questions were asked. The harness must be one over the whole column.
    """
    by_unit: dict[str, dict[str, UnitResult]] = {}
    for row, units in column.items():
        for unit in units:
            if unit.record:
                by_unit.setdefault(unit.entry.unit, {})[row] = unit
    harness = {
        f"{row}, {name}": unit.record.get("versions", {}).get("lm-eval")
        for name, rows in by_unit.items()
        for row, unit in rows.items()
    }
    return _first_difference("harness version lm-eval", harness) or next(
        (text for name, rows in by_unit.items() if (text := _unit_disagreement(name, rows, same_questions))), None
    )


def _unit_disagreement(name: str, rows: Mapping[str, UnitResult], same_questions: bool) -> str | None:
    configs = {row: unit.record.get("config", {}) for row, unit in rows.items()}
    complete = {row: unit for row, unit in rows.items() if unit.status == "complete"}
    questions = {row: unit.data_digest[:8] for row, unit in complete.items()} if same_questions else {}
    return (
        _first_difference(f"{name}: protocol", {row: config.get("protocol") for row, config in configs.items()})
        or _first_difference(f"{name}: data digest", {row: config.get("data") for row, config in configs.items()})
        or _first_difference(f"{name}: code", {row: unit.record.get("stage_version") for row, unit in rows.items()})
        or _first_difference(f"{name}: questions asked", questions)
    )


def _first_difference(what: str, values: Mapping[str, Any]) -> str | None:
    """Compare all values with the first; where one differs, name the innermost key that does."""
    rows = iter(values.items())
    first = next(rows, None)
    if first is None:
        return None
    first_row, first_value = first
    for row, value in rows:
        if value == first_value:
            continue
        path, ours, theirs = _innermost(first_value, value)
        return f"{what}{path} differs ({first_row}: {_short(ours)}; {row}: {_short(theirs)})"
    return None


def _innermost(ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                path, *values = _innermost(ours.get(key), theirs.get(key))
                return f".{key}{path}", values[0], values[1]
    return "", ours, theirs


def _short(value: Any, limit: int = 40) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
