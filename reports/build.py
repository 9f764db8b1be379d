"""`build_report`: read the store, compute every cell, judge the columns, number the notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from tokenweight.errors import UserError
from tokenweight.reports.agreement import disagreement
from tokenweight.reports.emphasis import emphasise
from tokenweight.reports.estimates import (
    Estimate,
    difference_of_rows,
    estimate_from_units,
    mean_of_columns,
    mean_of_seeds,
    units_of,
)
from tokenweight.reports.findings import judge
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.measures import ColumnMean, Difference
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow, Statistic
from tokenweight.reports.notes import Notes, flag_notes, general_notes, several_seeds
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.statistics import interval_95, pearson, spearman
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.columns import tokens_label
from tokenweight.reports.targets.model import Column, Row, Target
from tokenweight.reports.units import UnitResult, read_unit

Run = tuple[str, int]  # row and seed
RunUnits = Mapping[Run, list[UnitResult]]
RunEstimates = dict[Run, dict[str, Estimate]]  # -> column -> estimate
Estimates = dict[str, dict[str, Estimate]]  # row -> column -> estimate


def build_report(manifest: Manifest, store_root: Path, target: Target | None = None) -> Report:
    """The manifest's target, filled from the artifacts below `store_root`; `target`: one that is not the paper's.

    A pure function of its arguments and of those artifacts: no clock, no randomness that is not seeded.
    Raises UserError for an unknown target, or where the manifest's rows are not the target's.
    """
    target = target or get_target(manifest.target)
    _check_rows(target, manifest)
    columns = target.columns(manifest)
    units = _read_units(columns, manifest, store_root)
    runs = _estimate_all(target, columns, units, manifest)
    return _assemble(target, columns, runs, units, manifest)


def _check_rows(target: Target, manifest: Manifest) -> None:
    known = {row.key: row.recipe for row in target.rows}
    seen: set[Run] = set()
    for entry in manifest.rows:
        if entry.row not in known:
            raise UserError(f"manifest row {entry.row!r}: {target.name} has no such row; use {', '.join(known)}")
        if (entry.row, entry.seed) in seen:
            raise UserError(f"manifest row {entry.row!r}: seed {entry.seed} is given twice; keep one")
        if entry.recipe != known[entry.row]:
            raise UserError(
                f"manifest row {entry.row!r}: recipe {entry.recipe!r} where {target.name} shows {known[entry.row]!r}; "
                "give that recipe's units"
            )
        seen.add((entry.row, entry.seed))


def _seeds(manifest: Manifest) -> list[int]:
    return sorted({entry.seed for entry in manifest.rows}) or [0]


def _read_units(columns: Iterable[Column], manifest: Manifest, store_root: Path) -> RunUnits:
    """The units of each row and seed, read where a column of the target needs them."""
    measures = [column.measure for column in columns]
    found: dict[Run, list[UnitResult]] = {}
    for row in manifest.rows:
        unread = [UnitResult(entry, "missing") for entry in row.units]
        needed = {unit.entry.unit: unit.entry for measure in measures for unit in units_of(measure, unread)}
        found[row.row, row.seed] = [read_unit(entry, store_root) for entry in needed.values()]
    return found


def _estimate_all(target: Target, columns: tuple[Column, ...], units: RunUnits, manifest: Manifest) -> RunEstimates:
    """Columns that read samples first, then means of columns, then differences of rows of the same seed."""
    seeds = _seeds(manifest)
    estimates: RunEstimates = {(row.key, seed): {} for row in target.rows for seed in seeds}
    for column in columns:
        if not isinstance(column.measure, ColumnMean | Difference):
            _estimate_from_samples(column, target, units, manifest, estimates)
    for column in columns:
        if isinstance(column.measure, ColumnMean):
            for cells in estimates.values():
                cells[column.key] = mean_of_columns(column.measure, cells)
    for column in columns:
        if isinstance(column.measure, Difference):
            for row, seed in product(target.rows, seeds):
                if row.reference:
                    cells, reference = estimates[row.key, seed], estimates[row.reference, seed]
                    cells[column.key] = difference_of_rows(column.measure, cells, reference)
    return estimates


def _estimate_from_samples(
    column: Column,
    target: Target,
    units: RunUnits,
    manifest: Manifest,
    estimates: RunEstimates,
) -> None:
    seeds = _seeds(manifest)
    runs = {(row.key, seed): row for row in target.rows for seed in seeds}
    chosen = {run: units_of(column.measure, units.get(run, [])) for run in runs}
    labels = {
        run: row_label(row, manifest) + (f", seed {run[1]}" if len(seeds) > 1 else "") for run, row in runs.items()
    }
    refusal = disagreement(
        {
            row.key if len(seeds) == 1 else labels[run]: chosen[run]
            for run, row in runs.items()
            if _is_filled(row, column)
        },
        same_questions=target.same_questions,
    )
    for run, label in labels.items():
        if not units.get(run):
            estimates[run][column.key] = Estimate("missing", reasons=(f"{label}: not in this run",))
            continue
        estimate = estimate_from_units(column.measure, chosen[run], label, manifest)
        if refusal and estimate.status != "missing":
            reason = f"the rows of this column cannot be compared: {refusal}"
            estimate = replace(estimate, status="refused", value=None, draws=None, reasons=(reason,))
        estimates[run][column.key] = estimate


def _is_filled(row: Row, column: Column) -> bool:
    """Whether the paper has a number there. A difference needs a row to refer to."""
    if isinstance(column.measure, Difference) and row.reference is None:
        return False
    return row.fills is None or column.paper in row.fills


def row_label(row: Row, manifest: Manifest) -> str:
    """Both labels of a row as one, at this run's lengths: "Frozen Sparse", "No-train 1k", "Uniform"."""
    label = _scaled(row.label, manifest.ruler_lengths_tokens)
    return " ".join(part for part in (row.group, label) if part not in ("", "-"))


def _scaled(label: str, lengths_tokens: tuple[int, ...]) -> str:
    short, long = tokens_label(lengths_tokens[0]), tokens_label(lengths_tokens[-1])
    return label.replace("{short}", short).replace("{long}", long)


def _paper_labels(target: Target) -> dict[str | None, str]:
    """Headings of the paper's columns, by their names in the paper's data."""
    lengths = target.paper_lengths_tokens
    manifest = Manifest(
        target=target.name, scale="paper", rows=(), longbench_split_tokens=8192, ruler_lengths_tokens=lengths
    )
    return {column.paper: column.label for column in target.columns(manifest)}


def _assemble(
    target: Target,
    columns: tuple[Column, ...],
    runs: RunEstimates,
    units: RunUnits,
    manifest: Manifest,
) -> Report:
    rows = [row for row in target.rows if row.shown]
    shown = [column for column in columns if column.shown]
    seeds = _seeds(manifest)
    estimates: Estimates = {
        row.key: {
            column: mean_of_seeds([runs[row.key, seed][column] for seed in seeds]) for column in runs[row.key, seeds[0]]
        }
        for row in target.rows
    }
    notes = Notes(general_notes(target, manifest))
    if len(seeds) > 1:
        notes.extend([several_seeds(len(seeds))])
    marks = {column.key: _column_marks(column, rows, target, estimates, manifest, notes) for column in shown}
    report_rows = [
        ReportRow(
            key=row.key,
            group=row.group,
            label=_scaled(row.label, manifest.ruler_lengths_tokens),
            paper_label=_scaled(row.label, target.paper_lengths_tokens),
            recipe=row.recipe,
            rule_below=row.rule_below,
            cells=tuple(
                _cell(target, row, column, estimates, marks[column.key].get(row.key, ()), notes) for column in shown
            ),
        )
        for row in rows
    ]
    flagged = {
        row_label(row, manifest): [unit for seed in seeds for unit in units.get((row.key, seed), [])]
        for row in target.rows
    }
    notes.extend(flag_notes(flagged))
    paper_labels = _paper_labels(target)
    return Report(
        target=target.name,
        title=target.title,
        paper_place=target.paper_place,
        scale=manifest.scale,
        stub=target.stub,
        columns=tuple(_report_column(column, paper_labels.get(column.paper)) for column in shown),
        rows=tuple(report_rows),
        seeds=len(seeds),
        notes=notes.all(),
        statistics=_correlations(target, rows, estimates),
        findings=tuple(
            judge(finding, columns, {row.key: row_label(row, manifest) for row in target.rows}, runs, seeds)
            for finding in target.findings
        ),
    )


def _report_column(column: Column, paper_label: str | None) -> ReportColumn:
    return ReportColumn(
        key=column.key,
        label=column.label,
        group=column.group,
        decimals=column.decimals,
        signed=isinstance(column.measure, Difference),
        paper_column=column.paper,
        paper_label=paper_label if column.paper else None,
    )


def _column_marks(
    column: Column, rows: list[Row], target: Target, estimates: Estimates, manifest: Manifest, notes: Notes
) -> dict[str, tuple[Mark, ...]]:
    values = {row.key: estimates[row.key][column.key].value for row in rows if _is_filled(row, column)}
    emphasised = emphasise(target.emphasis, column.paper, values, column.decimals)
    if emphasised.withheld_for:
        labels = ", ".join(row_label(row, manifest) for row in rows if row.key in emphasised.withheld_for)
        notes.withhold(" ".join(filter(None, (column.group, column.label))), labels)
    for row in values:
        notes.extend(estimates[row][column.key].remarks)
    return emphasised.marks


def _cell(
    target: Target, row: Row, column: Column, estimates: Estimates, emphasis: tuple[Mark, ...], notes: Notes
) -> Cell:
    paper = paper_number(target.name, row.key, column.paper)
    if not _is_filled(row, column):
        return Cell(status="not_in_paper", paper=paper)
    estimate = estimates[row.key][column.key]
    low, high = interval_95(estimate.draws) if estimate.draws is not None else (None, None)
    return Cell(
        status=estimate.status,
        value=estimate.value,
        ci_low=low,
        ci_high=high,
        spread=estimate.spread,
        n=estimate.n,
        n_expected=estimate.n_expected,
        emphasis=emphasis,
        marks=tuple(sorted(notes.mark(reason) for reason in estimate.reasons)),
        paper=paper,
        addresses=estimate.addresses,
    )


def _correlations(target: Target, rows: list[Row], estimates: Estimates) -> tuple[Statistic, ...]:
    """Correlations of two columns over the rows; none where a row has no value in one of them."""
    if target.correlate is None:
        return ()
    first, second = target.correlate
    pairs = [(estimates[row.key][first].value, estimates[row.key][second].value) for row in rows]
    whole = [(x, y) for x, y in pairs if x is not None and y is not None]
    complete = len(whole) == len(rows)
    x, y = (np.array(side) for side in zip(*whole, strict=True)) if whole else (np.empty(0), np.empty(0))
    functions = {"Pearson": pearson, "Spearman": spearman}
    return tuple(
        Statistic(
            name=f"{name} correlation of {first} and {second}",
            value=functions[name](x, y) if complete else None,
            n=len(whole),
            paper=printed,
        )
        for name, printed in target.correlations_printed
    )
