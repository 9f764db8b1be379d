"""What each column gives in each row and seed: masks and means over the table of samples, refused where records disagree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from tokenweight.pipeline import measures
from tokenweight.pipeline.experiment import Column, Row
from tokenweight.pipeline.manifest import Manifest, Run
from tokenweight.progress import counted
from tokenweight.reports.agreement import disagreement
from tokenweight.reports.estimates import Estimate, Measured, Reason, mean_of_columns, means_and_draws
from tokenweight.reports.pmi import PERCENT, pmi_estimate
from tokenweight.reports.samples import Field, Samples, UnitResult, units_of
from tokenweight.reports.targets.columns import about

_NAMED = 3  # unit names that a note spells out
_MOST = float(np.finfo(np.float32).max)  # beyond it neither variance nor interval would be finite
_AFTER: dict[type, int] = {measures.ColumnMean: 1, measures.Difference: 2}  # measures that read other columns

RunUnits = Mapping[Run, list[UnitResult]]


def is_filled(row: Row, column: Column) -> bool:
    """Whether the paper has a number there. A difference needs a row to refer to."""
    refers = row.reference is not None or column.difference_of is None
    return refers and (row.fills is None or column.paper in row.fills)


def measure_all(samples: Samples, manifest: Manifest) -> dict[str, Measured[Run]]:
    """Each column by its key: those that read samples first, then means of columns, then differences of rows of the same seed."""
    rows, columns = manifest.experiment.rows, manifest.experiment.columns
    runs = list(product((row.key for row in rows), manifest.seeds))
    units: dict[str, RunUnits] = {}
    found: dict[str, Measured[Run]] = {}
    for column in sorted(columns, key=lambda column: _AFTER.get(type(column.measure), 0)):
        match column.measure:
            case measures.Difference(column=key):
                pairs = product([row for row in rows if row.reference], manifest.seeds)
                less = {(r.key, seed): found[key].less((r.key, seed), (str(r.reference), seed)) for r, seed in pairs}
                found[column.key] = Measured(less)
                continue
            case measures.ColumnMean(columns=keys):
                units[column.key] = {run: [unit for key in keys for unit in units[key][run]] for run in runs}
                measured = mean_of_columns([found[key] for key in keys])
            case measure:
                units[column.key] = {run: units_of(measure, samples.units.get(run, ())) for run in runs}
                measured = _from_samples(measure, units[column.key], samples, manifest)
                measured = _finite(measure, measured, units[column.key], manifest)
        found[column.key] = _agreed(column, units[column.key], manifest, measured)
    return found


def _agreed(column: Column, units: RunUnits, manifest: Manifest, measured: Measured[Run]) -> Measured[Run]:
    """The column without values where the records behind it disagree, in one row or between rows."""
    experiment = manifest.experiment
    filled = {row.key for row in experiment.rows if is_filled(row, column)}
    held = {run: units[run] for run in units if run[0] in filled}
    name_of = manifest.label if len(manifest.seeds) > 1 else itemgetter(0)
    refusal = disagreement(held, name_of, same_questions=experiment.same_questions)
    if refusal is None:
        return measured
    why, found = f"the records of this column cannot be compared: {refusal}", measured.cells
    refused = {run: cell.without_value("", why) for run, cell in found.items() if cell.status != "missing"}
    return Measured({**found, **refused})


def _finite(measure: measures.Measure, measured: Measured[Run], units: RunUnits, manifest: Manifest) -> Measured[Run]:
    """The column without values that are not finite, they or a resample of theirs: the perplexity of a diverged model."""
    cells = dict(measured.cells)
    for run, cell in measured.cells.items():
        numbers = np.append(() if cell.draws is None else cell.draws, () if cell.value is None else cell.value)
        if np.all(np.abs(numbers) <= _MOST):
            continue
        why = f"{', '.join(unit.entry.unit for unit in units[run][:_NAMED])}: its value overflows, it is not a finite number"
        if isinstance(measure, measures.Perplexity):
            why += f" (exp of a mean NLL of {measured.scores[run].mean():,.0f} nats)"
        cells[run] = cell.without_value(manifest.label(run), why)
    return Measured(cells, measured.scores)


def _from_samples(measure: measures.Measure, units: RunUnits, samples: Samples, manifest: Manifest) -> Measured[Run]:
    """A measure that reads samples, in every row and seed."""
    cells: dict[Run, Estimate] = {}
    of_one_unit = _OF_ONE_UNIT.get(type(measure))
    for run, chosen in units.items():
        label = manifest.label(run)
        if gap := _gap(measure, chosen, samples.units.get(run, ()), label):
            cells[run] = gap
        elif of_one_unit:
            cells[run] = of_one_unit(measure, chosen[0], label)
        else:
            known = None if getattr(measure, "side", None) else _expected(chosen)
            guessed = sum(unit.n * unit.summary.get("chance", 0.0) for unit in chosen) / sum(unit.n for unit in chosen)
            chance, addresses = getattr(measure, "chance", PERCENT * guessed), tuple(u.entry.address for u in chosen)
            cells[run] = Estimate("complete", n_expected=known, addresses=addresses, chance=chance or PERCENT * guessed)
    if of_one_unit:
        return Measured(cells)
    ready = {run: units[run] for run, cell in cells.items() if cell.status == "complete"}
    return _means(measure, ready, samples, cells, manifest)


def _means(
    measure: measures.Measure, ready: RunUnits, samples: Samples, cells: dict[Run, Estimate], manifest: Manifest
) -> Measured[Run]:
    """Mean over tasks of each task's mean score, into `cells` of the rows that are ready, or why they have none."""
    names = {unit.entry.unit for held in ready.values() for unit in held}

    def items(field: Field) -> pd.DataFrame:
        wide = samples.of_items(field)
        return wide.loc[wide.index.isin(names, level="unit"), list(ready)]

    scores = items("tolerant_score" if getattr(measure, "tolerant", False) else "score")
    counts = scores.count().to_dict()
    for run, held in ready.items():
        if counts[run] < (n := sum(unit.n for unit in held)):
            why = f"{held[0].entry.benchmark} has no tolerant scores"
            cells[run] = cells[run].without_value(manifest.label(run), why, n=n)
    if isinstance(measure, measures.TaskMean) and measure.side:
        lengths = items("untruncated_tokens" if measure.unit == "tokens" else "length_words")
        label = about([measure.benchmark])[measure.benchmark].get("label", measure.benchmark)
        where = f"{label} {'≤' if measure.side == 'short' else '>'}{measure.border} {measure.unit}"
        unknown = (lengths.isna() & scores.notna()).groupby(level="unit").sum()
        is_short = lengths <= measure.border
        scores = scores.where(is_short if measure.side == "short" else ~is_short)
        there = scores.groupby(level="unit").count()
        for run, held in ready.items():
            absent, name = sorted(u.entry.task for u in held if not there.at[u.entry.unit, run]), manifest.label(run)
            if bad := next((unit for unit in held if unknown.at[unit.entry.unit, run]), None):
                why = f"{bad.entry.unit}: samples without a length in {measure.unit}"
                cells[run] = cells[run].without_value(name, why, n=bad.n)
            elif len(absent) == len(held):
                cells[run] = cells[run].without_value(name, f"{where}: no task has a sample there", "missing")
            elif absent:
                remark = f"{where}: no sample there, left out of the mean: {', '.join(absent)}"
                cells[run] = replace(cells[run], remarks=(remark,))
    scores = scores[[run for run in ready if cells[run].status == "complete"]]
    scores.index = _tasks(measure, scores.index.get_level_values("unit"))
    held_tasks = scores.groupby(level=0, sort=False).count() > 0
    scale = 1.0 if isinstance(measure, measures.UnitMean | measures.Perplexity) else PERCENT
    weights = scale * held_tasks / held_tasks.sum()
    means, draws = means_and_draws(scores, weights)
    for run, mean in means.items():
        value, drawn = scale * mean, draws.get(run)
        if isinstance(measure, measures.Perplexity):
            with np.errstate(over="ignore"):  # refused then
                value, drawn = float(np.exp(value)), None if drawn is None else np.exp(drawn)
        n = int(scores[run].count())
        cells[run] = replace(cells[run], value=value, draws=drawn, df=n - int(held_tasks[run].sum()), n=n)
    return Measured(cells, scores)


def _tasks(measure: measures.Measure, units: pd.Index) -> pd.Index:
    """What the measure takes the mean of first: all samples of a benchmark or of a length as one, or each unit."""
    match measure:
        case measures.SampleMean(benchmark=benchmark):
            return pd.Index([benchmark] * len(units))
        case measures.Perplexity(benchmark=benchmark, length_tokens=length_tokens):
            return pd.Index([f"{benchmark}/{length_tokens}"] * len(units))
        case measures.TaskMean(side=str(side)):
            return units + f"/{side}"
    return units


def _phrase_token(measure: measures.PhraseToken, unit: UnitResult, label: str) -> Estimate:
    """The loss of one token. It has no scores to resample: a single token is no sample of anything."""
    addresses, tokens = (unit.entry.address,), unit.summary.get("tokens") or ()
    if tuple(map(str, tokens)) != measure.tokens or unit.n != len(tokens):
        reason = Reason(label, f"{unit.entry.unit}: its tokens are not those of the table")
        return Estimate("refused", reasons=(reason,), addresses=addresses)
    loss, about = float(unit.numbers["score"][measure.index].as_py()), str(unit.summary.get("about") or "")
    return Estimate("complete", loss, n=1, n_expected=1, remarks=(about,), addresses=addresses)


_OF_ONE_UNIT: dict[type, Callable[[Any, UnitResult, str], Estimate]]
_OF_ONE_UNIT = {measures.Pmi: pmi_estimate, measures.PhraseToken: _phrase_token}


def _gap(
    measure: measures.Measure, units: Sequence[UnitResult], held: Sequence[UnitResult], label: str
) -> Estimate | None:
    """The estimate of a cell whose units are not all there and sound, or None where they are; `held`: all of the row's."""
    if not held or {(unit.status, unit.reason) for unit in held} == {("missing", held[0].reason)}:
        return Estimate("missing", reasons=(Reason(label, held[0].reason if held else "not in this run"),))
    n = sum(unit.n for unit in units)
    if absent := _absent_tasks(measure, units):
        return Estimate("missing", n=n, reasons=(Reason(label, absent),))
    statuses = {unit.status for unit in units}
    status = next((status for status in ("refused", "missing", "partial") if status in statuses), None)
    if status is None:
        return None
    bad = [unit for unit in units if unit.status == status]
    several = "such as " if len(bad) > 1 else ""
    detail = f"{several}{bad[0].reason}" if status == "partial" else "; ".join(dict.fromkeys(u.reason for u in bad))
    names = ", ".join(unit.entry.unit for unit in bad[:_NAMED]) + (" and others" if len(bad) > _NAMED else "")
    reason = Reason(label, f"{len(bad)} of {counted(len(units), 'unit')} {status}, {names} ({detail})")
    addresses = tuple(unit.entry.address for unit in units if unit.record)
    return Estimate(status, n=n, n_expected=_expected(units), reasons=(reason,), addresses=addresses)


def _expected(units: Sequence[UnitResult]) -> int | None:
    """Samples that there should be, where every unit says."""
    expected = [unit.n_expected for unit in units if unit.n_expected]
    return sum(expected) if len(expected) == len(units) else None


def _absent_tasks(measure: measures.Measure, units: Sequence[UnitResult]) -> str | None:
    """A mean over tasks is over exactly the benchmark's tasks: say which the manifest does not hold."""
    tasks, length = [unit.entry.task for unit in units], getattr(measure, "length_tokens", None)
    what = f"{getattr(measure, 'benchmark', 'this column')}{f' at {length} tokens' if length else ''}"
    match measure:
        case measures.TaskMean(tasks=tuple(wanted)) if sorted(tasks) != sorted(wanted):
            lacking = ", ".join(task for task in wanted if task not in tasks)
            return f"the run has no unit of {what} for {lacking or 'each task once'}"
        case measures.TaskMean(task_count=int(count)) if len(set(tasks)) != count:
            return f"the run has {len(set(tasks))} of {counted(count, 'task')} of {what}"
        case measures.UnitMean(task=task):
            what += f"/{task}"
    return None if units else f"the run has no units of {what}"
