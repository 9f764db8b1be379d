"""`build_report`: read the store, compute every cell, judge the columns, number the notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from tokenweight.reports.agreement import origins
from tokenweight.reports.comparisons import Pair, compare, pair_of
from tokenweight.reports.emphasis import emphasis_words, emphasise
from tokenweight.reports.estimates import Estimate, mean_of_seeds, resampling_moves
from tokenweight.reports.findings import judge
from tokenweight.reports.labels import is_filled, paper_labels, row_label, scaled, seeds_of
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.measures import Difference
from tokenweight.reports.model import Cell, CellDifference, Mark, Report, ReportColumn, ReportRow, Statistic
from tokenweight.reports.notes import FEW_SAMPLES, Notes, few_samples, flag_notes, general_notes, repair, several_seeds
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.runs import RunEstimates, RunUnits, check_rows, estimate_all, read_all, with_phrase
from tokenweight.reports.statistics import interval_95, pearson, spearman
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.model import Column, Row, Target

Estimates = dict[str, dict[str, Estimate]]  # row -> column -> estimate


def build_report(manifest: Manifest, store_root: Path, target: Target | None = None) -> Report:
    """The manifest's target, filled from the artifacts below `store_root`; `target`: one that is not the paper's.

    A pure function of its arguments and of those artifacts: no clock, no randomness that is not seeded.
    Raises UserError for an unknown target, or where the manifest's rows are not the target's.
    """
    target = target or get_target(manifest.target)
    check_rows(target, manifest)
    manifest = with_phrase(manifest, store_root)
    columns = target.columns(manifest)
    units = read_all(columns, manifest, store_root)
    runs = estimate_all(target, columns, units, manifest)
    return _assemble(target, columns, runs, units, manifest)


def _assemble(
    target: Target,
    columns: tuple[Column, ...],
    runs: RunEstimates,
    units: RunUnits,
    manifest: Manifest,
) -> Report:
    rows = [row for row in target.rows if row.shown]
    shown = [column for column in columns if column.shown]
    seeds = seeds_of(manifest)
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
            label=scaled(row.label, manifest.ruler_lengths_tokens),
            paper_label=scaled(row.label, target.paper_lengths_tokens),
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
    if few := _fewest(estimates[row.key][column.key] for row in rows for column in shown if is_filled(row, column)):
        notes.extend([few_samples(few)])
    paper_of = paper_labels(target, manifest)
    return Report(
        target=target.name,
        title=target.title,
        paper_place=target.paper_place,
        scale=manifest.scale,
        stub=target.stub,
        columns=tuple(_report_column(column, paper_of.get(column.paper)) for column in shown),
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
        if baseline is None or baseline == row.key or not is_filled(row, column):
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
    values = {row.key: estimates[row.key][column.key].value for row in rows if is_filled(row, column)}
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
    if not is_filled(row, column):
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
        marks=tuple(sorted({notes.mark(reason) for reason in estimate.reasons})),
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
