"""What each row of a manifest gives in each column, by seed: units read, estimated, refused where records disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

from tokenweight.pipeline.experiment import Column, Row
from tokenweight.pipeline.manifest import Manifest, Run, UnitEntry
from tokenweight.pipeline.measures import ColumnMean, Difference, Measure
from tokenweight.reports.agreement import disagreement
from tokenweight.reports.comparisons import Measured
from tokenweight.reports.estimates import Estimate, Reason, RunEstimates, less, mean_of, resampled
from tokenweight.reports.measuring import estimate_from_units, units_of
from tokenweight.reports.units import UnitResult, read_unit, read_units

RunUnits = Mapping[Run, list[UnitResult]]


def is_filled(row: Row, column: Column) -> bool:
    """Whether the paper has a number there. A difference needs a row to refer to."""
    if isinstance(column.measure, Difference) and row.reference is None:
        return False
    return row.fills is None or column.paper in row.fills


def phrase_tokens(manifest: Manifest, store_root: Path) -> tuple[str, ...]:
    """The tokens of Table 1's phrase, which only a record knows: those of the first."""
    entries = (unit for row in manifest.rows for unit in row.units if unit.benchmark == "phrase")
    return next((tokens for entry in entries if (tokens := read_unit(entry, store_root).phrase_tokens)), ())


def read_all(manifest: Manifest, store_root: Path) -> RunUnits:
    """The units of each row and seed, read where a column needs them; a shared one is read once."""
    measures = [column.measure for column in manifest.experiment.columns]
    needed: dict[Run, dict[str, UnitEntry]] = {}
    for row in manifest.rows:
        unread = [UnitResult(entry, "missing") for entry in row.units]
        needed[row.row, row.seed] = {
            unit.entry.unit: unit.entry for measure in measures for unit in units_of(measure, unread)
        }
    entries = {entry: None for entries in needed.values() for entry in entries.values()}
    read = dict(zip(entries, read_units(entries, store_root), strict=True))
    return {run: [read[entry] for entry in entries.values()] for run, entries in needed.items()}


def estimate_all(units: RunUnits, manifest: Manifest) -> Measured:
    """Columns that read samples first, then means of columns, then differences of rows of the same seed."""
    rows, columns = manifest.experiment.rows, manifest.experiment.columns
    estimates: RunEstimates = {(row.key, seed): {} for row in rows for seed in manifest.seeds}
    for column in columns:
        if not isinstance(column.measure, ColumnMean | Difference):
            made = _refused(column, units, manifest, _from_samples(column, units, manifest))
            for run, estimate in resampled(made).items():
                estimates[run][column.key] = estimate
    for column in columns:
        if isinstance(column.measure, ColumnMean):
            keys = column.measure.columns
            means = {run: mean_of([cells[key] for key in keys]) for run, cells in estimates.items()}
            for run, estimate in _refused(column, units, manifest, means).items():
                estimates[run][column.key] = estimate
    for column in columns:
        if isinstance(column.measure, Difference):
            for row, seed in product(rows, manifest.seeds):
                if row.reference:
                    sides = (estimates[key, seed][column.measure.column] for key in (row.key, row.reference))
                    estimates[row.key, seed][column.key] = less(*sides)
    return Measured(manifest.experiment, estimates, manifest.seeds)


def _from_samples(column: Column, units: RunUnits, manifest: Manifest) -> dict[Run, Estimate]:
    made = {}
    for run in product((row.key for row in manifest.experiment.rows), manifest.seeds):
        label, held = manifest.label(run), units.get(run, [])
        if not held:
            made[run] = Estimate("missing", reasons=(Reason(label, "not in this run"),))
        elif {unit.status for unit in held} == {"missing"} and len({unit.reason for unit in held}) == 1:
            made[run] = Estimate("missing", reasons=(Reason(label, held[0].reason),))
        else:
            made[run] = estimate_from_units(column.measure, units_of(column.measure, held), label)
    return made


def _refused(column: Column, units: RunUnits, manifest: Manifest, made: Mapping[Run, Estimate]) -> dict[Run, Estimate]:
    """The column's estimates without values where the records behind it disagree, in one row or between rows."""
    experiment = manifest.experiment
    measures = {column.key: column.measure for column in experiment.columns}
    read = _samples_behind(column.measure, measures)
    one_seed = len(manifest.seeds) == 1
    filled = {row.key for row in experiment.rows if is_filled(row, column)}
    refusal = disagreement(
        {
            run[0] if one_seed else manifest.label(run): [
                unit for measure in read for unit in units_of(measure, units.get(run, []))
            ]
            for run in made
            if run[0] in filled
        },
        same_questions=experiment.same_questions,
    )
    if refusal is None:
        return dict(made)
    reason = Reason("", f"the records of this column cannot be compared: {refusal}")
    return {
        run: estimate
        if estimate.status == "missing"
        else replace(estimate, status="refused", value=None, draws=None, terms={}, reasons=(reason,))
        for run, estimate in made.items()
    }


def _samples_behind(measure: Measure, measures: Mapping[str, Measure]) -> list[Measure]:
    """The measures that read samples, of a column or of those that it is the mean of."""
    if isinstance(measure, ColumnMean):
        return [leaf for key in measure.columns for leaf in _samples_behind(measures[key], measures)]
    return [measure]
