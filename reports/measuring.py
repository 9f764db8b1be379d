"""From the units that a measure reads to one number with its terms: each measure as arithmetic on tasks' means."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tokenweight.pipeline.measures import (
    Measure,
    Perplexity,
    PhraseToken,
    Pmi,
    SampleMean,
    TaskMean,
    UnitMean,
)
from tokenweight.reports.estimates import Estimate, Reason, Term
from tokenweight.reports.pmi import read_distribution, statistic
from tokenweight.reports.units import Floats, UnitResult

PERCENT = 100.0
_NAMED = 3  # unit names that a note spells out


def units_of(measure: Measure, units: Sequence[UnitResult]) -> list[UnitResult]:
    """Those of a row's units that the measure reads, in the order of their names; none for derived measures."""
    benchmark, tasks = getattr(measure, "benchmark", None), getattr(measure, "tasks", None)
    tasks = (measure.task,) if isinstance(measure, UnitMean) else tasks
    chosen = [
        unit
        for unit in units
        if unit.entry.benchmark == benchmark
        and (tasks is None or unit.entry.task in tasks)
        and (not isinstance(measure, TaskMean | Perplexity) or unit.entry.length_tokens == measure.length_tokens)
    ]
    return sorted(chosen, key=lambda unit: unit.entry.unit)


def estimate_from_units(measure: Measure, units: Sequence[UnitResult], label: str) -> Estimate:
    """A measure that reads samples, over the units that `units_of` chose; `label` names the row in reasons."""
    gap = _gap(measure, units, label)
    if gap is not None:
        return gap
    match measure:
        case SampleMean(benchmark, tolerant):
            scores = np.concatenate([unit.tolerant_scores if tolerant else unit.scores for unit in units])
            if np.any(np.isnan(scores)):
                reason = Reason(label, f"{benchmark} has no tolerant scores")
                return Estimate("refused", n=len(scores), reasons=(reason,))
            estimate = _mean_of_tasks({benchmark: (scores, _items(units))}, PERCENT)
        case UnitMean():
            estimate = _mean_of_tasks({unit.entry.unit: (unit.scores, _items([unit])) for unit in units}, 1.0)
        case Perplexity(length_tokens):
            scores = np.concatenate([unit.scores for unit in units])
            estimate = _mean_of_tasks({f"perplexity/{length_tokens}": (scores, _items(units))}, 1.0)
            estimate = replace(estimate, value=float(np.exp(estimate.value or 0.0)), exponential=True)
        case TaskMean():
            estimate = _task_mean(measure, units, label)
        case Pmi():
            return _pmi(measure, units[0], label)
        case PhraseToken():
            return _phrase_token(measure, units[0], label)
        case _:
            raise TypeError(f"{type(measure).__name__} reads columns, not samples")
    expected = [unit.n_expected for unit in units]
    known = not (isinstance(measure, TaskMean) and measure.side)
    return replace(
        estimate,
        n_expected=sum(n for n in expected if n) if known and all(expected) else None,
        addresses=tuple(unit.entry.address for unit in units),
    )


def _pmi(measure: Pmi, unit: UnitResult, label: str) -> Estimate:
    """A statistic of one unit's distribution; n is the number of tokens."""
    found = Estimate("refused", addresses=(unit.entry.address,))
    try:
        distribution = read_distribution(unit)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = Reason(label, f"{unit.entry.unit} is unreadable ({type(error).__name__})")
        return replace(found, reasons=(reason,))
    far, whole = (int(distribution.total("tokens", tokens)) for tokens in ("far", "all"))
    n = far if measure.tokens == "far" else whole
    if not n:
        return replace(
            found, status="missing", reasons=(Reason(label, "no document is long enough for a far context"),)
        )
    value, draws = statistic(measure, distribution)
    remark = (
        f"{label}: {PERCENT * far / whole:.1f} % of {whole} tokens have a far context, the others stand in the first window "
        "of what the model read at once."
    )
    return replace(found, status="complete", value=value, draws=draws, n=n, n_expected=n, remarks=(remark,))


def _phrase_token(measure: PhraseToken, unit: UnitResult, label: str) -> Estimate:
    """The loss of one token. It has no terms: a single token is no sample of anything."""
    if unit.phrase_tokens != measure.tokens or len(unit.scores) != len(unit.phrase_tokens):
        reason = Reason(label, f"{unit.entry.unit}: its tokens are not those of the table")
        return Estimate("refused", reasons=(reason,), addresses=(unit.entry.address,))
    return Estimate(
        "complete",
        float(unit.scores[measure.index]),
        n=1,
        n_expected=1,
        remarks=(unit.about,),
        addresses=(unit.entry.address,),
    )


def _task_mean(measure: TaskMean, units: Sequence[UnitResult], label: str) -> Estimate:
    if measure.side is None:
        return _mean_of_tasks({unit.entry.unit: (unit.scores, _items([unit])) for unit in units}, PERCENT)
    by_tokens = measure.unit == "tokens"
    scores: dict[str, tuple[Floats, str]] = {}
    left_out: list[str] = []
    for unit in units:
        lengths = unit.untruncated_tokens if by_tokens else unit.length_words
        if np.any(np.isnan(lengths)):
            reason = Reason(label, f"{unit.entry.unit}: samples without a length in {measure.unit}")
            return Estimate("refused", n=len(unit.scores), reasons=(reason,))
        short = lengths <= measure.border
        chosen = short if measure.side == "short" else ~short
        if np.any(chosen):
            scores[f"{unit.entry.unit}/{measure.side}"] = unit.scores[chosen], _items([unit], chosen.tobytes())
        else:
            left_out.append(unit.entry.task)
    border = f"{'≤' if measure.side == 'short' else '>'}{measure.border}"
    where = f"LongBench {border} {measure.unit}"
    if not scores:
        return Estimate("missing", reasons=(Reason(label, f"{where}: no task has a sample there"),))
    remarks = (f"{where}: no sample there, left out of the mean: {', '.join(sorted(left_out))}",) if left_out else ()
    return replace(_mean_of_tasks(scores, PERCENT), remarks=remarks)


def _mean_of_tasks(tasks: Mapping[str, tuple[Floats, str]], scale: float) -> Estimate:
    """Mean over tasks of each task's mean score; keys seed the draws, so they must be the same in every row."""
    terms = {key: Term(scores, items, scale / len(tasks)) for key, (scores, items) in tasks.items()}
    value = scale * float(np.mean([np.mean(term.scores) for term in terms.values()]))
    return Estimate("complete", value, terms=terms, n=sum(len(term.scores) for term in terms.values()))


def _items(units: Sequence[UnitResult], chosen: bytes = b"") -> str:
    """Digest of which samples: the questions of all units, and which of them are used."""
    return hashlib.sha256("|".join(unit.data_digest for unit in units).encode() + chosen).hexdigest()


def _gap(measure: Measure, units: Sequence[UnitResult], label: str) -> Estimate | None:
    """The estimate of a cell whose units are not all there and sound, or None where they are."""
    n = sum(len(unit.scores) for unit in units)
    absent = _absent_tasks(measure, units)
    if absent:
        return Estimate("missing", n=n, reasons=(Reason(label, absent),))
    for status in ("refused", "missing", "partial"):
        bad = [unit for unit in units if unit.status == status]
        if bad:
            reasons = dict.fromkeys(unit.reason for unit in bad)
            reason = bad[0].reason if status == "partial" else "; ".join(reasons)
            detail = reason if len(bad) == 1 or status != "partial" else f"such as {reason}"
            expected = [unit.n_expected for unit in units]
            return Estimate(
                status,
                n=n,
                n_expected=sum(e for e in expected if e) if all(expected) else None,
                reasons=(Reason(label, f"{len(bad)} of {len(units)} units {status}, {_names(bad)} ({detail})"),),
                addresses=tuple(unit.entry.address for unit in units if unit.record),
            )
    return None


def _absent_tasks(measure: Measure, units: Sequence[UnitResult]) -> str | None:
    """A mean over tasks is over exactly the benchmark's tasks: say which the manifest does not hold."""
    tasks = [unit.entry.task for unit in units]
    if isinstance(measure, TaskMean):
        where = f" at {measure.length_tokens} tokens" if measure.length_tokens else ""
        if measure.tasks is not None and sorted(tasks) != sorted(measure.tasks):
            lacking = [task for task in measure.tasks if task not in tasks]
            return f"the run has no unit of {measure.benchmark}{where} for {', '.join(lacking) or 'each task once'}"
        if measure.task_count is not None and len(set(tasks)) != measure.task_count:
            return f"the run has {len(set(tasks))} of {measure.task_count} tasks of {measure.benchmark}{where}"
    if not units:
        what = f"perplexity at {measure.length_tokens} tokens" if isinstance(measure, Perplexity) else None
        what = f"{measure.benchmark}/{measure.task}" if isinstance(measure, UnitMean) else what
        what = "pmi" if isinstance(measure, Pmi) else what
        what = "the phrase" if isinstance(measure, PhraseToken) else what
        return f"the run has no units of {what or getattr(measure, 'benchmark', 'this column')}"
    return None


def _names(units: Sequence[UnitResult]) -> str:
    names = [unit.entry.unit for unit in units[:_NAMED]]
    return ", ".join(names) + (" and others" if len(units) > _NAMED else "")
