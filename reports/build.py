"""`build_report`: read the records, compute every cell, judge the columns, number the notes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tokenweight.pipeline.experiment import Column, Experiment, Row
from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import Difference, PhraseToken
from tokenweight.reports.agreement import origins
from tokenweight.reports.comparisons import Comparison, Measured, compare, judge
from tokenweight.reports.emphasis import emphasis_words, emphasise
from tokenweight.reports.estimates import Estimate, interval, resampling_moves
from tokenweight.reports.model import Cell, CellDifference, Mark, Report, ReportColumn, ReportRow, Statistic
from tokenweight.reports.notes import FEW_SAMPLES, Notes, few_samples, flag_notes, general_notes, repair, several_seeds
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.runs import RunUnits, estimate_all, is_filled, phrase_tokens, read_all
from tokenweight.reports.statistics import pearson, spearman
from tokenweight.reports.targets.columns import phrase_columns

Estimates = dict[str, dict[str, Estimate]]  # row -> column -> estimate


def build_report(manifest: Manifest, store_root: Path) -> Report:
    """The manifest's experiment, filled from the records below `store_root`.

    A pure function of its arguments and of those records: no clock, no randomness that is not seeded, no data, no model.
    """
    experiment = manifest.experiment
    if any(isinstance(column.measure, PhraseToken) for column in experiment.columns):
        columns = phrase_columns(phrase_tokens(manifest, store_root))
        manifest = manifest.model_copy(update={"experiment": experiment.model_copy(update={"columns": columns})})
    units = read_all(manifest, store_root)
    return _assemble(manifest, estimate_all(units, manifest), units)


def _assemble(manifest: Manifest, measured: Measured, units: RunUnits) -> Report:
    experiment, seeds, estimates = manifest.experiment, manifest.seeds, measured.means
    rows = [row for row in experiment.rows if row.shown]
    shown = [column for column in experiment.columns if column.shown]
    filled = [(row, column) for row in rows for column in shown if is_filled(row, column)]
    notes = Notes(general_notes(manifest))
    notes.extend(origins(unit for held in units.values() for unit in held))
    if len(seeds) > 1:
        notes.extend([several_seeds(len(seeds))])
    marks = {column.key: _column_marks(column, rows, experiment, estimates, notes) for column in shown}
    differences = compare(measured, _pairs(experiment, filled))

    def cell(row: Row, column: Column) -> Cell:
        paper = paper_number(experiment.name, row.key, column.paper)
        if not is_filled(row, column):
            return Cell(status="not_in_paper", paper=paper)
        estimate, difference = estimates[row.key][column.key], differences.get((row.key, column.key))
        low, high = _interval(estimate, column, difference)
        return Cell(
            status=estimate.status,
            value=estimate.value,
            ci_low=low,
            ci_high=high,
            spread=estimate.spread,
            n=estimate.n,
            n_expected=estimate.n_expected,
            emphasis=marks[column.key].get(row.key, ()),
            marks=tuple(sorted({notes.mark(reason) for reason in estimate.reasons})),
            difference=difference,
            paper=paper,
            addresses=estimate.addresses,
        )

    report_rows = tuple(
        ReportRow(
            key=row.key,
            group=row.group,
            label=row.label,
            paper_label=row.paper_label or row.label,
            recipe=row.recipe,
            rule_below=row.rule_below,
            cells=tuple(cell(row, column) for column in shown),
        )
        for row in rows
    )
    flagged = {row.name: [unit for seed in seeds for unit in units.get((row.key, seed), [])] for row in experiment.rows}
    notes.extend(flag_notes(flagged))
    if any(cell.status in ("missing", "partial", "refused") for row in report_rows for cell in row.cells):
        notes.extend([repair(manifest)])
    terms = [term for row, column in filled for term in estimates[row.key][column.key].terms.values()]
    fewest = min((len(term.scores) for term in terms), default=FEW_SAMPLES)
    if fewest < FEW_SAMPLES:
        notes.extend([few_samples(fewest)])
    return Report(
        target=experiment.name,
        title=experiment.title,
        paper_place=experiment.paper_place,
        scale=manifest.scale,
        stub=experiment.stub,
        columns=tuple(_report_column(column) for column in shown),
        rows=report_rows,
        seeds=len(seeds),
        baseline=measured.labels[experiment.baseline] if experiment.baseline else None,
        emphasis=emphasis_words(experiment),
        notes=notes.all(),
        statistics=_correlations(experiment, rows, estimates),
        findings=judge(measured) if len(seeds) > 1 else (),
    )


def _pairs(experiment: Experiment, filled: Iterable[tuple[Row, Column]]) -> dict[tuple[str, str], Comparison]:
    """Each filled cell with its baseline: the experiment's, or for a difference column the row's reference."""
    pairs = {}
    for row, column in filled:
        is_difference = isinstance(column.measure, Difference)
        measured = column.measure.column if isinstance(column.measure, Difference) else column.key
        baseline = row.reference if is_difference else experiment.baseline
        if baseline is not None and baseline != row.key:
            pairs[row.key, column.key] = (row.key, baseline, measured)
    return pairs


def _report_column(column: Column) -> ReportColumn:
    return ReportColumn(
        key=column.key,
        label=column.label,
        group=column.group,
        decimals=column.decimals,
        signed=isinstance(column.measure, Difference),
        difference_of=column.measure.column if isinstance(column.measure, Difference) else None,
        paper_column=column.paper,
        paper_label=column.paper_label,
    )


def _column_marks(
    column: Column, rows: list[Row], experiment: Experiment, estimates: Estimates, notes: Notes
) -> dict[str, tuple[Mark, ...]]:
    values = {row.key: estimates[row.key][column.key].value for row in rows if is_filled(row, column)}
    marks, withheld_for = emphasise(experiment.emphasis, column.paper, values, column.decimals)
    if withheld_for:
        notes.withhold(column.name, ", ".join(row.name for row in rows if row.key in withheld_for))
    for row in values:
        notes.extend(estimates[row][column.key].remarks)
    return marks


def _interval(
    estimate: Estimate, column: Column, difference: CellDifference | None
) -> tuple[float | None, float | None]:
    """None where all samples of each task have the same score: resampling cannot show how uncertain the value is."""
    if isinstance(column.measure, Difference) and difference:
        return difference.ci_low, difference.ci_high
    return interval(None if estimate.terms and not resampling_moves(estimate) else estimate.draws)


def _correlations(experiment: Experiment, rows: list[Row], estimates: Estimates) -> tuple[Statistic, ...]:
    """Correlations of two columns over the rows; none where a row has no value in one of them."""
    if experiment.correlate is None:
        return ()
    first, second = experiment.correlate
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
        for name, printed in experiment.correlations_printed
    )
