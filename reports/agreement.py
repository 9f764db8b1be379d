"""Two protocols never share a column: compare the records behind it, and say where they disagree.

The identity of code is the stage's version, which is raised whenever a change of code changes what the stage writes and
is part of every fingerprint. Commits are not compared, since most of them change nothing here: where records come from
several, or from uncommitted changes, a note says so (`origins`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from tokenweight.reports.units import UnitResult

# Row -> that row's units of one column.
ColumnUnits = Mapping[str, list[UnitResult]]

# What a configuration says of one task alone; all else is the benchmark's.
_OF_A_TASK = ("metric", "generation", "fewshot", "fewshot_order", "template_version", "lengths_tokens")
_PROTOCOL = ("protocol", "scoring", "evaluation")  # parts of an evaluation's configuration
_DIGEST = "sha256:"  # how the digest of raw data begins, in the place of its path
# Inputs that all rows share where they answer the same questions. LongBench's prompts are cut to each model's context.
_SHARED_INPUTS = {"ruler": ("prepared",), "planted": ("chunks", "scores")}
_NOTED_VERSIONS = ("torch", "transformers", "tokenizers")


def disagreement(column: ColumnUnits, *, same_questions: bool = True) -> str | None:
    """Why the rows of a column cannot be compared, or None where they can.

    The harness and the stage's version must be one over the whole column, within a row too; a benchmark's protocol over
    all its units. For each unit, compared over all rows that hold it: the whole protocol, digests of raw data, and,
    with `same_questions`, shared inputs and, between complete units, which questions were asked.
    """
    by_unit: dict[str, dict[str, UnitResult]] = {}
    by_benchmark: dict[str, dict[str, Any]] = {}
    for row, units in column.items():
        for unit in units:
            if unit.record:
                by_unit.setdefault(unit.entry.unit, {})[row] = unit
                protocol = _without(_protocol(unit), lambda key, value: key in _OF_A_TASK or _is_digest(value))
                by_benchmark.setdefault(unit.entry.benchmark, {})[f"{row}, {unit.entry.unit}"] = protocol
    everywhere = {f"{row}, {name}": unit.record for name, rows in by_unit.items() for row, unit in rows.items()}
    checks = chain(
        (
            ("harness version lm-eval", {w: r.get("versions", {}).get("lm-eval") for w, r in everywhere.items()}),
            ("code: stage version", {w: r.get("stage_version") for w, r in everywhere.items()}),
        ),
        *(_unit_checks(name, rows, same_questions) for name, rows in by_unit.items()),
        ((f"{name}: protocol", all_of) for name, all_of in by_benchmark.items()),
    )
    return next((text for what, values in checks if (text := _first_difference(what, values))), None)


def origins(units: Iterable[UnitResult]) -> tuple[str, ...]:
    """Notes on what is not refused: several commits, uncommitted changes, several versions of what runs the models."""
    records = [unit.record for unit in units if unit.record]
    gits = [record.get("git") or {} for record in records]
    commits = sorted({str(git["commit"])[:8] for git in gits if git.get("commit")})
    dirty = sum(bool(git.get("dirty")) for git in gits)
    notes = []
    if len(commits) > 1:
        notes.append(
            f"Evaluated at {len(commits)} commits: {', '.join(commits)}; a stage's version tells where its code changed."
        )
    if dirty:
        notes.append(f"{dirty} of {len(records)} evaluations ran with uncommitted changes in the checkout.")
    for package in _NOTED_VERSIONS:
        versions = sorted({str(record.get("versions", {}).get(package)) for record in records} - {"None"})
        if len(versions) > 1:
            notes.append(f"Evaluated with {len(versions)} versions of {package}: {', '.join(versions)}.")
    return tuple(notes)


def _protocol(unit: UnitResult) -> dict[str, Any]:
    """All of a unit's configuration that rows must share: settings, prompts, metric, digests of raw data."""
    config: dict[str, Any] = unit.record.get("config", {})
    return {key: value for part in _PROTOCOL for key, value in (config.get(part) or {}).items()}


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_DIGEST)


def _without(tree: dict[str, Any], drop: Callable[[str, Any], bool]) -> dict[str, Any]:
    """A tree of dictionaries without some leaves."""
    kept = {key: _without(value, drop) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in kept.items() if not drop(key, value)}


def _inputs(unit: UnitResult) -> dict[str, Any]:
    inputs = unit.record.get("inputs")
    return inputs if isinstance(inputs, dict) else {}


def _unit_checks(
    name: str, rows: Mapping[str, UnitResult], same_questions: bool
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is compared of one unit over the rows that hold it: by row."""
    protocols = {row: _protocol(unit) for row, unit in rows.items()}
    yield f"{name}: protocol", {row: _without(p, lambda _, v: _is_digest(v)) for row, p in protocols.items()}
    yield f"{name}: data digest", protocols
    if same_questions:
        shared = _SHARED_INPUTS.get(name.partition("/")[0], ())
        yield (
            f"{name}: data digest",
            {row: {key: _inputs(unit).get(key) for key in shared} for row, unit in rows.items()},
        )
        complete = {row: unit.data_digest[:8] for row, unit in rows.items() if unit.status == "complete"}
        yield f"{name}: questions asked", complete


def _first_difference(what: str, values: Mapping[str, Any]) -> str | None:
    """Compare all values with the first; where one differs, name the innermost key that does."""
    for row, value in values.items():
        first_row, first_value = next(iter(values.items()))
        if value != first_value:
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
