"""`build_report`: read the records, compute every cell, judge the columns, number the notes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from tokenweight.pipeline.experiment import Column, Experiment, Row
from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import Difference, PhraseToken
from tokenweight.reports.agreement import origins
from tokenweight.reports.comparisons import Comparison, Results, compare, judge
from tokenweight.reports.display import words
from tokenweight.reports.emphasis import emphasise
from tokenweight.reports.estimates import Estimate, Measured, Reason
from tokenweight.reports.measuring import is_filled, measure_all
from tokenweight.reports.model import Cell, CellDifference, Mark, Note, Report, ReportColumn, ReportRow, Statistic
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.samples import Samples, UnitResult, read_samples
from tokenweight.reports.statistics import interval_95, pearson, spearman
from tokenweight.reports.targets.columns import phrase_columns

_FEW_SAMPLES = 20  # of a task; with fewer its bootstrap interval holds the mean less often than it says
_NAMED = 3  # units that a flag's note spells out

# What the flags of an evaluation mean; the evaluation names them, and may have others.
FLAG_MEANINGS: dict[str, str] = json.loads(Path(__file__).with_name("flags.json").read_text("utf-8"))


def build_report(manifest: Manifest, store_root: Path) -> Report:
    """The manifest's experiment, filled from the records below `store_root`.

    A pure function of its arguments and of those records: no clock, no randomness that is not seeded, no data, no model.
    """
    samples = read_samples(manifest, store_root)
    manifest = _with_tokens(manifest, samples)
    results = Results(manifest.experiment, measure_all(samples, manifest), manifest.seeds)
    experiment, seeds, means = results.experiment, results.seeds, results.means
    rows = [row for row in experiment.rows if row.shown]
    shown = [column for column in experiment.columns if column.shown]
    filled = {
        (row.key, column.key): means[column.key].cells[row.key]
        for row in rows
        for column in shown
        if is_filled(row, column)
    }
    differences = compare(
        results, _pairs(experiment, [(r, c) for r in rows for c in shown if (r.key, c.key) in filled])
    )
    emphasis, withheld = _emphasis(experiment, shown, rows, filled)
    numbered = _by_text(reason for cell in filled.values() for reason in cell.reasons)
    numbers = {text: number for number, text in enumerate(numbered, start=1)}

    def cell(row: Row, column: Column) -> Cell:
        paper = paper_number(experiment.name, row.key, column.paper)
        found, difference = filled.get((row.key, column.key)), differences.get((row.key, column.key))
        if found is None:
            return Cell(status="not_in_paper", paper=paper)
        low, high = _interval(means[column.key], row.key, column, difference)
        return Cell(
            **{name: getattr(found, name) for name in ("status", "value", "spread", "n", "n_expected", "addresses")},
            ci_low=low,
            ci_high=high,
            emphasis=emphasis[column.key].get(row.key, ()),
            marks=tuple(sorted({numbers[reason.text] for reason in found.reasons})),
            difference=difference,
            paper=paper,
        )

    table = tuple(
        ReportRow(
            **{name: getattr(row, name) for name in ("key", "group", "label", "recipe", "rule_below")},
            paper_label=row.paper_label or row.label,
            cells=tuple(cell(row, column) for column in shown),
        )
        for row in rows
    )
    units = [
        (row.name, unit) for row in experiment.rows for seed in seeds for unit in samples.units.get((row.key, seed), ())
    ]
    remarks = (
        filled[row.key, column.key].remarks for column in shown for row in rows if (row.key, column.key) in filled
    )
    fewest = _fewest(means, filled)
    general = [
        *_on_the_run(manifest),
        *origins(unit for held in samples.units.values() for unit in held),
        *([words("several_seeds", len(seeds))] if len(seeds) > 1 else ()),
        *chain.from_iterable(remarks),
        *_flags(units),
        *([words("repair", manifest.command)] if any(c.status != "complete" for c in filled.values()) else ()),
        *([words("few_samples", fewest)] if fewest < _FEW_SAMPLES else ()),
    ]
    return Report(
        target=experiment.name,
        title=experiment.title,
        paper_place=experiment.paper_place,
        scale=manifest.scale,
        stub=experiment.stub,
        columns=tuple(_report_column(column) for column in shown),
        rows=table,
        seeds=len(seeds),
        baseline=results.labels[experiment.baseline] if experiment.baseline else None,
        emphasis=words("emphasis", experiment.emphasis, results.labels, {c.paper: c.name for c in experiment.columns}),
        notes=_all_notes(general, withheld, numbered),
        statistics=_correlations(experiment, rows, means),
        findings=judge(results) if len(seeds) > 1 else (),
    )


def _with_tokens(manifest: Manifest, samples: Samples) -> Manifest:
    """Table 1 has a column for each token of its phrase, which only a record knows: those of the first."""
    experiment = manifest.experiment
    if not any(isinstance(column.measure, PhraseToken) for column in experiment.columns):
        return manifest
    texts = (unit.summary.get("tokens") for units in samples.units.values() for unit in units)
    columns = phrase_columns(tuple(map(str, next(filter(None, texts), ()))))
    return manifest.model_copy(update={"experiment": experiment.model_copy(update={"columns": columns})})


def _pairs(experiment: Experiment, filled: Iterable[tuple[Row, Column]]) -> dict[tuple[str, str], Comparison]:
    """Each filled cell with its baseline: the experiment's, or for a difference column the row's reference."""
    pairs = {}
    for row, column in filled:
        measured, baseline = column.key, experiment.baseline
        if isinstance(column.measure, Difference):
            measured, baseline = column.measure.column, row.reference
        if baseline is not None and baseline != row.key:
            pairs[row.key, column.key] = (row.key, baseline, measured)
    return pairs


def _report_column(column: Column) -> ReportColumn:
    difference_of = column.measure.column if isinstance(column.measure, Difference) else None
    same = {name: getattr(column, name) for name in ("key", "label", "group", "decimals", "paper_label")}
    return ReportColumn(
        **same, signed=difference_of is not None, difference_of=difference_of, paper_column=column.paper
    )


def _emphasis(
    experiment: Experiment, shown: Sequence[Column], rows: Sequence[Row], filled: Mapping[tuple[str, str], Estimate]
) -> tuple[dict[str, dict[str, tuple[Mark, ...]]], dict[str, list[str]]]:
    """Marks by column and row, and by the rows that lack a value the columns that are not judged for want of it."""
    marks, withheld = {}, dict[str, list[str]]()
    for column in shown:
        values = {row.key: filled[row.key, column.key].value for row in rows if (row.key, column.key) in filled}
        marks[column.key], lacking = emphasise(experiment.emphasis, column.paper, values, column.decimals)
        if lacking:
            withheld.setdefault(", ".join(row.name for row in rows if row.key in lacking), []).append(column.name)
    return marks, withheld


def _interval(
    measured: Measured[str], row: str, column: Column, difference: CellDifference | None
) -> tuple[float | None, float | None]:
    """None where all samples of each task have the same score: resampling cannot show how uncertain the value is."""
    if isinstance(column.measure, Difference) and difference:
        return difference.ci_low, difference.ci_high
    still = row in measured.of and not measured.moves(row)
    return interval_95(None if still else measured.cells[row].draws)


def _fewest(means: Mapping[str, Measured[str]], filled: Collection[tuple[str, str]]) -> int:
    """The fewest samples of a task that any shown value rests on."""
    sizes = []
    for column in dict.fromkeys(column for _, column in filled):
        found = means[column].scores
        counts = found[[row for row in found.columns if (row, column) in filled]].groupby(level=0).count()
        sizes += counts.to_numpy().ravel().tolist()
    return int(min((n for n in sizes if n), default=_FEW_SAMPLES))


def _correlations(
    experiment: Experiment, rows: Sequence[Row], means: Mapping[str, Measured[str]]
) -> tuple[Statistic, ...]:
    """Correlations of two columns over the rows; none where a row has no value in one of them."""
    if experiment.correlate is None:
        return ()
    first, second = experiment.correlate
    values = [[means[column].cells[row.key].value for column in (first, second)] for row in rows]
    whole = pd.DataFrame(values, dtype=np.float64).dropna().to_numpy()
    functions = {"Pearson": pearson, "Spearman": spearman}
    return tuple(
        Statistic(
            name=f"{name} correlation of {first} and {second}",
            value=functions[name](*whole.T) if len(whole) == len(rows) else None,
            n=len(whole),
            paper=printed,
        )
        for name, printed in experiment.correlations_printed
    )


def _by_text(reasons: Iterable[Reason]) -> dict[str, list[str]]:
    """Reasons in the order in which cells have them: text -> the rows that it is said of, which share a note."""
    rows: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reasons):
        rows.setdefault(reason.text, []).append(reason.row)
    return rows


def _all_notes(
    general: Iterable[str], withheld: Mapping[str, Sequence[str]], numbered: Mapping[str, Sequence[str]]
) -> tuple[Note, ...]:
    """All notes in the order of printing: on the whole table, on columns without emphasis, then those of cells by number."""
    texts = [*dict.fromkeys(general), *(words("withheld", columns, rows) for rows, columns in withheld.items())]
    of_cells = (": ".join(filter(None, (", ".join(filter(None, rows)), text))) for text, rows in numbered.items())
    return (
        *(Note(mark=None, text=text) for text in texts),
        *(Note(mark=mark, text=text) for mark, text in enumerate(of_cells, start=1)),
    )


def _on_the_run(manifest: Manifest) -> Iterator[str]:
    """What the table is, divergences from the paper, and which rows failed, and why."""
    yield from (manifest.about, *manifest.experiment.divergences, *manifest.divergences)
    failed: dict[str, dict[str, None]] = {}
    for entry in manifest.rows:
        if entry.failed:
            failed.setdefault(entry.failed, {})[manifest.label((entry.row, entry.seed))] = None
    for why, rows in failed.items():
        yield words("failed", list(rows), why)


def _flags(units: Iterable[tuple[str, UnitResult]]) -> Iterator[str]:
    """One note per kind of implausible result, over the units of all rows (each with its row's label)."""
    flagged: dict[str, list[str]] = {}
    for label, unit in units:
        for flag in unit.summary.get("flags") or ():
            flagged.setdefault(str(flag), []).append(f"{unit.entry.unit} ({label})")
    for flag, where in sorted(flagged.items()):
        yield words("flagged", flag, FLAG_MEANINGS.get(flag, ""), where, _NAMED)
