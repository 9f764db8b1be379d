"""`build_report`: read the store, compute every cell, judge the columns, number the notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from tokenweight.errors import UserError
from tokenweight.reports.agreement import disagreement, origins
from tokenweight.reports.comparisons import Pair, compare, pair_of
from tokenweight.reports.emphasis import emphasis_words, emphasise
from tokenweight.reports.estimates import (
    Estimate,
    Reason,
    difference_of_rows,
    estimate_from_units,
    mean_of_columns,
    mean_of_seeds,
    resampled,
    resampling_moves,
    units_of,
)
from tokenweight.reports.findings import judge
from tokenweight.reports.manifest import Manifest, UnitEntry
from tokenweight.reports.measures import ColumnMean, Difference, Measure
from tokenweight.reports.model import Cell, CellDifference, Mark, Report, ReportColumn, ReportRow, Statistic
from tokenweight.reports.notes import FEW_SAMPLES, Notes, few_samples, flag_notes, general_notes, repair, several_seeds
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.statistics import interval_95, pearson, spearman
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.columns import tokens_label
from tokenweight.reports.targets.model import Column, Row, Target
from tokenweight.reports.units import UnitResult, read_unit, read_units

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
    manifest = _with_phrase(manifest, store_root)
    columns = target.columns(manifest)
    units = _read_all(columns, manifest, store_root)
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


def _with_phrase(manifest: Manifest, store_root: Path) -> Manifest:
    """With the tokens of Table 1's phrase, which only a record knows: those of the first."""
    entries = (unit for row in manifest.rows for unit in row.units if unit.benchmark == "phrase")
    known = (tokens for entry in entries if (tokens := read_unit(entry, store_root).phrase_tokens))
    return manifest.model_copy(update={"phrase_tokens": next(known, manifest.phrase_tokens)})


def _seeds(manifest: Manifest) -> list[int]:
    return sorted({entry.seed for entry in manifest.rows}) or [0]


def _read_all(columns: Iterable[Column], manifest: Manifest, store_root: Path) -> RunUnits:
    """The units of each row and seed, read where a column of the target needs them; a shared one is read once."""
    measures = [column.measure for column in columns]
    needed: dict[Run, dict[str, UnitEntry]] = {}
    for row in manifest.rows:
        unread = [UnitResult(entry, "missing") for entry in row.units]
        needed[row.row, row.seed] = {
            unit.entry.unit: unit.entry for measure in measures for unit in units_of(measure, unread)
        }
    entries = {entry: None for entries in needed.values() for entry in entries.values()}
    read = dict(zip(entries, read_units(entries, store_root), strict=True))
    return {run: [read[entry] for entry in entries.values()] for run, entries in needed.items()}


def _estimate_all(target: Target, columns: tuple[Column, ...], units: RunUnits, manifest: Manifest) -> RunEstimates:
    """Columns that read samples first, then means of columns, then differences of rows of the same seed."""
    seeds = _seeds(manifest)
    estimates: RunEstimates = {(row.key, seed): {} for row in target.rows for seed in seeds}
    for column in columns:
        if not isinstance(column.measure, ColumnMean | Difference):
            made = _refused(column, columns, target, units, manifest, _from_samples(column, target, units, manifest))
            for run, estimate in resampled(made).items():
                estimates[run][column.key] = estimate
    for column in columns:
        if isinstance(column.measure, ColumnMean):
            means = {run: mean_of_columns(column.measure, cells) for run, cells in estimates.items()}
            for run, estimate in _refused(column, columns, target, units, manifest, means).items():
                estimates[run][column.key] = estimate
    for column in columns:
        if isinstance(column.measure, Difference):
            for row, seed in product(target.rows, seeds):
                if row.reference:
                    cells, reference = estimates[row.key, seed], estimates[row.reference, seed]
                    cells[column.key] = difference_of_rows(column.measure, cells, reference)
    return estimates


def _from_samples(column: Column, target: Target, units: RunUnits, manifest: Manifest) -> dict[Run, Estimate]:
    made = {}
    for run, label in _run_labels(target, manifest).items():
        held = units.get(run, [])
        if not held:
            made[run] = Estimate("missing", reasons=(Reason(label, "not in this run"),))
        elif {unit.status for unit in held} == {"missing"} and len({unit.reason for unit in held}) == 1:
            made[run] = Estimate("missing", reasons=(Reason(label, held[0].reason),))
        else:
            made[run] = estimate_from_units(column.measure, units_of(column.measure, held), label, manifest)
    return made


def _refused(
    column: Column,
    columns: Iterable[Column],
    target: Target,
    units: RunUnits,
    manifest: Manifest,
    made: Mapping[Run, Estimate],
) -> dict[Run, Estimate]:
    """The column's estimates without values where the records behind it disagree, in one row or between rows."""
    measures = {column.key: column.measure for column in columns}
    read = _samples_behind(column.measure, measures)
    labels = {
        run: run[0] if len(_seeds(manifest)) == 1 else label for run, label in _run_labels(target, manifest).items()
    }
    filled = {row.key for row in target.rows if _is_filled(row, column)}
    refusal = disagreement(
        {
            labels[run]: [unit for measure in read for unit in units_of(measure, units.get(run, []))]
            for run in made
            if run[0] in filled
        },
        same_questions=target.same_questions,
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


def _run_labels(target: Target, manifest: Manifest) -> dict[Run, str]:
    seeds = _seeds(manifest)
    return {
        (row.key, seed): row_label(row, manifest) + (f", seed {seed}" if len(seeds) > 1 else "")
        for row in target.rows
        for seed in seeds
    }


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


def _paper_labels(target: Target, manifest: Manifest) -> dict[str | None, str]:
    """Headings of the paper's columns, by their names in the paper's data."""
    lengths = target.paper_lengths_tokens
    of_paper = Manifest(
        target=target.name,
        scale="paper",
        rows=(),
        longbench_split_tokens=8192,
        ruler_lengths_tokens=lengths,
        phrase_tokens=manifest.phrase_tokens,
    )
    return {column.paper: column.label for column in target.columns(of_paper)}


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
    notes.extend(origins(unit for held in units.values() for unit in held))
    if len(seeds) > 1:
        notes.extend([several_seeds(len(seeds))])
    marks = {column.key: _column_marks(column, rows, target, estimates, manifest, notes) for column in shown}
    labels = {row.key: row_label(row, manifest) for row in target.rows}
    differences = compare(_pairs(target, rows, shown, runs, estimates, seeds, labels))
    report_rows = [
        ReportRow(
            key=row.key,
            group=row.group,
            label=_scaled(row.label, manifest.ruler_lengths_tokens),
            paper_label=_scaled(row.label, target.paper_lengths_tokens),
            recipe=row.recipe,
            rule_below=row.rule_below,
            cells=tuple(
                _cell(
                    target,
                    row,
                    column,
                    estimates,
                    marks[column.key].get(row.key, ()),
                    differences.get((row.key, column.key)),
                    notes,
                )
                for column in shown
            ),
        )
        for row in rows
    ]
    flagged = {
        row_label(row, manifest): [unit for seed in seeds for unit in units.get((row.key, seed), [])]
        for row in target.rows
    }
    notes.extend(flag_notes(flagged))
    if any(cell.status in ("missing", "partial", "refused") for row in report_rows for cell in row.cells):
        notes.extend([repair(target, manifest)])
    if few := _fewest(estimates[row.key][column.key] for row in rows for column in shown if _is_filled(row, column)):
        notes.extend([few_samples(few)])
    paper_labels = _paper_labels(target, manifest)
    return Report(
        target=target.name,
        title=target.title,
        paper_place=target.paper_place,
        scale=manifest.scale,
        stub=target.stub,
        columns=tuple(_report_column(column, paper_labels.get(column.paper)) for column in shown),
        rows=tuple(report_rows),
        seeds=len(seeds),
        baseline=labels[target.baseline] if target.baseline else None,
        emphasis=emphasis_words(target, columns, labels),
        notes=notes.all(),
        statistics=_correlations(target, rows, estimates),
        findings=judge(target.findings, columns, labels, estimates, runs, seeds) if len(seeds) > 1 else (),
    )


def _pairs(
    target: Target,
    rows: Iterable[Row],
    columns: Iterable[Column],
    runs: RunEstimates,
    estimates: Estimates,
    seeds: Sequence[int],
    labels: Mapping[str, str],
) -> dict[tuple[str, str], Pair]:
    """Each filled cell with its baseline: the target's, or for a difference column the row's reference."""
    pairs = {}
    for row, column in product(rows, columns):
        is_difference = isinstance(column.measure, Difference)
        measured = column.measure.column if isinstance(column.measure, Difference) else column.key
        baseline = row.reference if is_difference else target.baseline
        if baseline is None or baseline == row.key or not _is_filled(row, column):
            continue
        pairs[row.key, column.key] = pair_of(row.key, baseline, measured, labels[baseline], estimates, runs, seeds)
    return pairs


def _fewest(estimates: Iterable[Estimate]) -> int | None:
    """Samples of the smallest task behind any value, where they are few."""
    sizes = [len(term.scores) for estimate in estimates for term in estimate.terms.values()]
    return min(sizes) if sizes and min(sizes) < FEW_SAMPLES else None


def _report_column(column: Column, paper_label: str | None) -> ReportColumn:
    return ReportColumn(
        key=column.key,
        label=column.label,
        group=column.group,
        decimals=column.decimals,
        signed=isinstance(column.measure, Difference),
        difference_of=column.measure.column if isinstance(column.measure, Difference) else None,
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
    target: Target,
    row: Row,
    column: Column,
    estimates: Estimates,
    emphasis: tuple[Mark, ...],
    difference: CellDifference | None,
    notes: Notes,
) -> Cell:
    paper = paper_number(target.name, row.key, column.paper)
    if not _is_filled(row, column):
        return Cell(status="not_in_paper", paper=paper)
    estimate = estimates[row.key][column.key]
    low, high = _interval(estimate, column, difference)
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
        difference=difference,
        paper=paper,
        addresses=estimate.addresses,
    )


def _interval(
    estimate: Estimate, column: Column, difference: CellDifference | None
) -> tuple[float | None, float | None]:
    """None where all samples of each task have the same score: resampling cannot show how uncertain the value is."""
    if isinstance(column.measure, Difference) and difference:
        return difference.ci_low, difference.ci_high
    if estimate.draws is None or (estimate.terms and not resampling_moves(estimate)):
        return None, None
    return interval_95(estimate.draws)


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
