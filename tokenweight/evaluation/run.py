"""Evaluate one model on many units: resumable, batched across units, one loaded model.

Each unit writes `rows.parquet` and `summary.json` into its own directory and is yielded as soon as it is complete;
what an unfinished unit has so far is in its journal, so that a killed run repeats at most one batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.backends import check_backend, load
from tokenweight.evaluation.benchmark import AskedBenchmark, PassBenchmark, Unit, UnitRun
from tokenweight.evaluation.guards import summary
from tokenweight.evaluation.rows import ROWS_NAME, SUMMARY_NAME, Journal, Row, read_rows, write_json, write_rows
from tokenweight.evaluation.samples import Sample
from tokenweight.evaluation.units import BENCHMARKS, benchmark_of
from tokenweight.pipeline.environment import peak_memory_bytes
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Evaluation, Execution

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


def _finish(run: UnitRun, journal: Journal, n_expected: int, notes: dict[str, Any] | None = None) -> Unit:
    """Write summary.json, then rows.parquet; the unit is complete with the latter."""
    rows = list(journal.rows.values())
    # Of this process, which holds the model; the store's record is about the one that asked for the unit.
    notes = {**(notes or {}), "peak_memory_bytes": peak_memory_bytes()}
    content = summary(rows, run.unit, n_expected=n_expected, seconds=journal.seconds, notes=notes)
    write_json(content, run.out_dir / SUMMARY_NAME)
    write_rows(rows, run.out_dir)
    journal.remove()
    return run.unit


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
    check_backend(evaluation.backend)
    if execution.tensor_parallel > 1 and evaluation.backend == "hf":
        raise UserError("tensor_parallel: belongs to --backend vllm; with hf each model must fit one GPU")
    if loaded is None:
        loaded = partial(load, evaluation.backend, checkpoint_dir, context_tokens, execution, evaluation.precision)
    yield from evaluate(loaded(), left, evaluation, progress)


def evaluate(
    model: LoadedModel, runs: Sequence[UnitRun], evaluation: Evaluation, progress: Progress = no_progress
) -> Iterator[Unit]:
    """Evaluate a loaded model on units that are not complete; otherwise as :func:`evaluate_checkpoint`."""
    for name, benchmark in BENCHMARKS.items():
        own = [run for run in runs if run.unit.benchmark == name]
        if own and isinstance(benchmark, PassBenchmark):
            yield from _read(benchmark, own, evaluation, model, progress)
        elif own and isinstance(benchmark, AskedBenchmark):
            yield from _ask(benchmark, own, evaluation, model, progress)


# --- Benchmarks of one pass over texts ---------------------------------------------------------


def _read(
    benchmark: PassBenchmark, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    journals = {run.unit: Journal(run.out_dir) for run in runs}
    rows = {unit: journal.rows for unit, journal in journals.items()}
    done, total = len(set.intersection(*map(set, rows.values()))), benchmark.total(evaluation)
    notes: dict[str, Any] = {}
    what = f"{benchmark.name} {benchmark.texts}"
    progress(0, total, what)
    started = time.monotonic()
    for step in benchmark.steps(runs, evaluation, model, rows):
        share = (time.monotonic() - started) / len(runs)
        for unit, journal in journals.items():
            journal.append(step.rows.get(unit, ()), share)
        done, notes = step.done, dict(step.notes)
        progress(done, max(total, done), what)
        started = time.monotonic()
    for run in runs:
        own = list(rows[run.unit].values())
        yield _finish(run, journals[run.unit], len(own), notes | benchmark.notes(own, done))


# --- Benchmarks that ask the model -------------------------------------------------------------

Asked = tuple[UnitRun, Sample]


def _ask(
    benchmark: AskedBenchmark, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    samples = benchmark.samples(runs, evaluation, model)
    journals = {run.unit: Journal(run.out_dir) for run in runs}
    waiting: list[Asked] = []
    for run in runs:
        own, journal = samples[run.unit], journals[run.unit]
        journal.keep_only({sample.doc_id: sample.prompt_sha256 for sample in own})
        missing = [(run, sample) for sample in own if sample.doc_id not in journal.rows]
        waiting += missing
        if not missing:
            yield _finish(run, journal, len(own))
    total, done = len(waiting), 0
    what = f"{benchmark.name} samples"
    progress(0, total, what)
    for batch in _batches(waiting, model):
        started = time.monotonic()
        outputs = _outputs([sample for _, sample in batch], model)
        new: dict[Unit, list[Row]] = {}
        for (run, sample), output in zip(batch, outputs, strict=True):
            task = run.unit.task
            scored = benchmark.score(task, output, sample.references, sample.all_classes, evaluation)
            new.setdefault(run.unit, []).append(sample.row(output, benchmark.metric(task), scored))
        share = (time.monotonic() - started) / len(batch)
        done += len(batch)
        progress(done, total, what)
        for run in {run.unit: run for run, _ in batch}.values():
            journal, rows, expected = journals[run.unit], new[run.unit], len(samples[run.unit])
            journal.append(rows, share * len(rows))
            if len(journal.rows) == expected:
                yield _finish(run, journal, expected)


def _batches(waiting: list[Asked], model: LoadedModel) -> Iterator[list[Asked]]:
    """Samples with equal generation arguments, longest first, as many as the batch's tokens allow when padded."""

    def arguments(sample: Sample) -> tuple[int, str]:
        return sample.new_tokens, repr(sample.instances[0].args[1:]) if sample.new_tokens else ""

    def order(item: Asked) -> tuple[Any, ...]:
        run, sample = item
        return *arguments(sample), -sample.prompt.n_tokens, run.unit.id, sample.doc_id

    for _, alike in groupby(sorted(waiting, key=order), key=lambda item: arguments(item[1])):
        left = list(alike)
        while left:
            longest = left[0][1]
            size = model.batch_size(longest.prompt.n_tokens + longest.new_tokens, longest.new_tokens)
            yield left[:size]
            left = left[size:]


def _outputs(samples: list[Sample], model: LoadedModel) -> list[str]:
    """What the model answers to each sample: text, or a JSON list of its choices' log-likelihoods."""
    instances = [instance for sample in samples for instance in sample.instances]
    try:
        if samples[0].new_tokens:
            return list(model.generate(instances))
        answers = iter(model.log_likelihoods(instances, contexts=len(samples)))
    except MemoryError:  # of a GPU
        if len(samples) == 1:
            n_tokens = samples[0].prompt.n_tokens
            raise StageError(f"a prompt of {n_tokens} tokens does not fit the GPU's memory") from None
        half = len(samples) // 2
        return _outputs(samples[:half], model) + _outputs(samples[half:], model)
    return [json.dumps([float(next(answers)[0]) for _ in sample.instances]) for sample in samples]
