"""Evaluate one model on many units: resumable, batched across units, one loaded model.

Each unit writes `rows.parquet` and `summary.json` into its own directory and is yielded as soon as it is complete;
what an unfinished unit has so far is in its journal, so that a killed run repeats at most one batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tokenweight.errors import StageError
from tokenweight.evaluation.backends import load
from tokenweight.evaluation.benchmark import Benchmark, Unit, UnitRun
from tokenweight.evaluation.guards import summary
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import ROWS_NAME, SUMMARY_NAME, Journal, read_rows, write_rows, write_summary
from tokenweight.evaluation.units import BENCHMARKS, benchmark_of
from tokenweight.pipeline.environment import peak_memory_bytes
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Evaluation, Execution


def is_complete(out_dir: Path) -> bool:
    """Whether a unit's rows and summary are there and readable."""
    if not (out_dir / ROWS_NAME).exists() or not (out_dir / SUMMARY_NAME).exists():
        return False
    read_rows(out_dir)
    return True


def evaluate_checkpoint(
    checkpoint_dir: Path,
    runs: Sequence[UnitRun],
    evaluation: Evaluation,
    context_tokens: int,
    execution: Execution,
    progress: Progress = no_progress,
    loaded: Callable[[], LoadedModel] | None = None,
) -> Iterator[Unit]:
    """Evaluate a checkpoint directory on units; yields each unit when its rows are complete.

    `context_tokens` is the longest input of the model: nothing longer is ever sent. Progress counts samples. `loaded`
    gives the model where the caller keeps it for several benchmarks. UserError: data is missing or not in its official
    layout (before the model loads). StageError: a prepared prompt does not fit, or was prepared for another tokenizer.
    """
    left = []
    for run in runs:
        run.out_dir.mkdir(parents=True, exist_ok=True)
        if is_complete(run.out_dir):
            yield run.unit
        else:
            benchmark_of(run.unit).raw_files(run.unit, evaluation)
            left.append(run)
    if not left:
        return
    if loaded is None:
        loaded = partial(load, evaluation.backend, checkpoint_dir, context_tokens, execution, evaluation.precision)
    yield from evaluate(loaded(), left, evaluation, progress)


def evaluate(
    model: LoadedModel, runs: Sequence[UnitRun], evaluation: Evaluation, progress: Progress = no_progress
) -> Iterator[Unit]:
    """Evaluate a loaded model on units that are not complete; otherwise as :func:`evaluate_checkpoint`."""
    for name, benchmark in BENCHMARKS.items():
        if own := [run for run in runs if run.unit.benchmark == name]:
            yield from _run(benchmark, own, evaluation, model, progress)


def _run(
    benchmark: Benchmark, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    journals = {run.unit: Journal(run.out_dir) for run in runs}
    started = time.monotonic()
    for step in benchmark.steps(runs, evaluation, model, {unit: journal.rows for unit, journal in journals.items()}):
        new = {unit: rows for unit, rows in step.rows.items() if rows}
        for unit, row in ((unit, row) for unit, rows in new.items() for row in rows):
            if not math.isfinite(row.score):
                raise StageError(f"{unit.id}: sample {row.doc_id} scores {row.score}; the checkpoint may be damaged")
        seconds_a_row = (time.monotonic() - started) / max(1, sum(map(len, new.values())))
        for unit, rows in new.items():
            journals[unit].append(rows, seconds_a_row * len(rows))
        progress(step.done, max(step.total, step.done), f"{benchmark.name} {benchmark.counted}")
        for unit, notes in step.complete.items():
            _finish(unit, journals[unit], {**notes, "peak_memory_bytes": peak_memory_bytes()})
            yield unit
        started = time.monotonic()


def _finish(unit: Unit, journal: Journal, notes: dict[str, object]) -> None:
    """Write summary.json, then rows.parquet; the unit is complete with the latter."""
    rows = list(journal.rows.values())
    write_summary(summary(rows, unit, n_expected=len(rows), seconds=journal.seconds, notes=notes), journal.out_dir)
    write_rows(rows, journal.out_dir)
    journal.remove()
