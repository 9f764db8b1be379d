"""Evaluate one checkpoint on many units: resumable, batched across units, one loaded model.

Each unit writes `rows.parquet` and `summary.json` into its own directory and is yielded as soon as it is complete;
what an unfinished unit has so far is in its journal, so that a killed run repeats at most one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.corpus.sources import document_count
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.guards import summary
from tokenweight.evaluation.prepare import data_files
from tokenweight.evaluation.rows import ROWS_NAME, SUMMARY_NAME, Journal, Row, read_rows, write_json, write_rows
from tokenweight.evaluation.samples import Sample
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.evaluation.vllm_check import check_vllm
from tokenweight.pipeline.environment import peak_memory_bytes
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Evaluation, Execution

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


@dataclass(frozen=True)
class Job:
    """A unit to evaluate: where what was prepared for it is, and where its rows go.

    RULER, LongBench: the prompts; planted: the sequences and the frozen scorer's NLL of them; PMI and phrase with a
    frozen scorer: that model; else nothing.
    """

    unit: Unit
    prepared_dirs: tuple[Path, ...]
    out_dir: Path


class OpenUnit:
    """A unit at work: its rows so far, kept in a journal, and its end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.journal = Journal(job.out_dir)

    def add(self, rows: Iterable[Row], seconds: float) -> None:
        """Keep rows that took `seconds`."""
        self.journal.append(rows, seconds)

    def finish(self, n_expected: int, notes: dict[str, Any] | None = None) -> Unit:
        """Write summary.json, then rows.parquet; the unit is complete with the latter."""
        job, rows = self.job, list(self.journal.rows.values())
        # Of this process, which holds the model; the store's record speaks of the one that asked for the unit.
        notes = {**(notes or {}), "peak_memory_bytes": peak_memory_bytes()}
        told = summary(rows, job.unit.id, n_expected=n_expected, seconds=self.journal.seconds, notes=notes)
        write_json(told, job.out_dir / SUMMARY_NAME)
        write_rows(rows, job.out_dir)
        self.journal.remove()
        return job.unit


def is_complete(out_dir: Path) -> bool:
    """Whether a unit's rows and summary are there and readable."""
    if not (out_dir / ROWS_NAME).exists() or not (out_dir / SUMMARY_NAME).exists():
        return False
    read_rows(out_dir)
    return True


def evaluate(
    checkpoint_dir: Path,
    jobs: Sequence[Job],
    evaluation: Evaluation,
    context_tokens: int,
    execution: Execution,
    progress: Progress = no_progress,
) -> Iterator[Unit]:
    """Evaluate a checkpoint directory on the jobs' units; yields each unit when its rows are complete.

    `context_tokens` is the longest input of the model: nothing longer is ever sent. Progress counts samples.

    Raises:
        UserError: data is missing or not in its official layout (before the model loads).
        StageError: a prepared prompt does not fit, or was prepared for another tokenizer.
    """
    left = []
    for job in jobs:
        job.out_dir.mkdir(parents=True, exist_ok=True)
        if is_complete(job.out_dir):
            yield job.unit
        else:
            data_files(job.unit, evaluation)
            left.append(job)
    if not left:
        return
    from tokenweight.evaluation.workers import evaluate_in_workers, visible_devices

    if evaluation.backend == "vllm":
        check_vllm()
    elif execution.tensor_parallel > 1:
        raise UserError("tensor_parallel: belongs to --backend vllm; with hf each model must fit one GPU")
    several = execution.evaluation_processes != 1 and visible_devices(execution) != [None]
    if several or evaluation.backend == "vllm":  # vllm gives memory back only when its process ends
        yield from evaluate_in_workers(checkpoint_dir, left, evaluation, context_tokens, execution, progress)
        return
    from tokenweight.evaluation.loaded_model import load

    harness = load(evaluation.backend, checkpoint_dir, context_tokens, execution, evaluation.precision)
    yield from evaluate_with(harness, left, evaluation, progress)


def evaluate_with(
    harness: LoadedModel, jobs: Sequence[Job], evaluation: Evaluation, progress: Progress = no_progress
) -> Iterator[Unit]:
    """Evaluate a loaded checkpoint on jobs that are not complete; otherwise as :func:`evaluate`."""
    for benchmark in BENCHMARKS:
        open_units = [OpenUnit(job) for job in jobs if job.unit.benchmark == benchmark]
        if open_units:
            yield from _RUN.get(benchmark, _run_prompts)(open_units, evaluation, harness, progress)


# --- Benchmarks that ask the model -------------------------------------------------------------


def _run_prompts(
    open_units: list[OpenUnit], evaluation: Evaluation, harness: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    samples = _samples([unit.job for unit in open_units], evaluation, harness)
    waiting: list[tuple[OpenUnit, Sample]] = []
    for unit in open_units:
        own = samples[unit.job.unit]
        unit.journal.keep_only({sample.doc_id: sample.prompt_sha256 for sample in own})
        todo = [sample for sample in own if sample.doc_id not in unit.journal.rows]
        waiting += [(unit, sample) for sample in todo]
        if not todo:
            yield unit.finish(len(own))
    total, done = len(waiting), 0
    what = f"{open_units[0].job.unit.benchmark} samples"
    progress(0, total, what)
    for batch in _batches(waiting, harness):
        started = time.monotonic()
        rows = _ask([sample for _, sample in batch], harness)
        share = (time.monotonic() - started) / len(batch)
        done += len(batch)
        progress(done, total, what)
        touched: dict[OpenUnit, list[Row]] = {}
        for (unit, _), row in zip(batch, rows, strict=True):
            touched.setdefault(unit, []).append(row)
        for unit, new in touched.items():
            unit.add(new, share * len(new))
            if len(unit.journal.rows) == len(samples[unit.job.unit]):
                yield unit.finish(len(samples[unit.job.unit]))


def _samples(jobs: list[Job], evaluation: Evaluation, harness: LoadedModel) -> dict[Unit, list[Sample]]:
    benchmark = jobs[0].unit.benchmark
    tasks = [job.unit.task for job in jobs]
    if benchmark in ("mmlu", "bbh"):
        from tokenweight.evaluation import bbh, mmlu

        by_task = (
            mmlu.subjects_samples(tasks, evaluation.mmlu, harness)
            if benchmark == "mmlu"
            else bbh.tasks_samples(tasks, evaluation.bbh, harness)
        )
        return {job.unit: by_task[job.unit.task] for job in jobs}
    from tokenweight.evaluation.prompted import unit_samples

    return {job.unit: unit_samples(job.unit, job.prepared_dirs[0], evaluation, harness) for job in jobs}


def _batches(waiting: list[tuple[OpenUnit, Sample]], harness: LoadedModel) -> Iterator[list[tuple[OpenUnit, Sample]]]:
    """Samples with equal generation arguments, longest first, as many as the batch's tokens allow when padded."""

    def arguments(sample: Sample) -> tuple[int, str]:
        return sample.max_new_tokens, repr(sample.instances[0].args[1:]) if sample.max_new_tokens else ""

    def order(item: tuple[OpenUnit, Sample]) -> tuple[Any, ...]:
        unit, sample = item
        return *arguments(sample), -sample.n_prompt_tokens, unit.job.unit.id, sample.doc_id

    batch: list[tuple[OpenUnit, Sample]] = []
    for item in sorted(waiting, key=order):
        sample = item[1]
        if batch:
            first = batch[0][1]
            longest = first.n_prompt_tokens + first.max_new_tokens
            if arguments(sample) != arguments(first) or len(batch) >= harness.batch_size(longest, first.max_new_tokens):
                yield batch
                batch = []
        batch.append(item)
    if batch:
        yield batch


def _ask(samples: list[Sample], harness: LoadedModel) -> list[Row]:
    instances = [instance for sample in samples for instance in sample.instances]
    answers: list[Any]
    try:
        if samples[0].max_new_tokens:
            answers = list(harness.generate(instances))
        else:
            answers = list(harness.log_likelihoods(instances, contexts=len(samples)))
    except MemoryError:  # of a GPU
        if len(samples) == 1:
            raise StageError(f"a prompt of {samples[0].n_prompt_tokens} tokens does not fit the GPU's memory") from None
        half = len(samples) // 2
        return _ask(samples[:half], harness) + _ask(samples[half:], harness)
    rows, start = [], 0
    for sample in samples:
        rows.append(sample.row(answers[start : start + len(sample.instances)]))
        start += len(sample.instances)
    return rows


# --- Perplexity --------------------------------------------------------------------------------


def _run_perplexity(
    open_units: list[OpenUnit], evaluation: Evaluation, harness: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    from tokenweight.evaluation.perplexity import document_rows

    by_length = {unit.job.unit.length_tokens or 0: unit for unit in open_units}
    known = set.intersection(*(set(unit.journal.rows) for unit in open_units))
    too_short = dict.fromkeys(by_length, 0)
    seen, total = len(known), evaluation.perplexity.documents or 0
    started = time.monotonic()
    for document in document_rows(list(by_length), evaluation.perplexity, harness, known):
        share = (time.monotonic() - started) / len(by_length)
        for length, unit in by_length.items():
            unit.add([document.rows[length]] if length in document.rows else [], share)
        for length in document.too_short_for:
            too_short[length] += 1
        seen += 1
        progress(seen, max(total, seen), "perplexity documents")
        started = time.monotonic()
    for length, unit in by_length.items():
        notes = {"documents": seen, "documents_too_short": too_short[length]}
        yield unit.finish(n_expected=seen - too_short[length], notes=notes)


# --- The distribution of the PMI ---------------------------------------------------------------


def _run_pmi(
    open_units: list[OpenUnit], evaluation: Evaluation, harness: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    from tokenweight.evaluation.pmi import chunk_rows
    from tokenweight.evaluation.pmi_histogram import resume, totals

    (open_unit,) = open_units
    out_dir, journal = open_unit.job.out_dir, open_unit.journal
    histogram, journal.rows = resume(out_dir, journal.rows)
    scorer_dir = next(iter(open_unit.job.prepared_dirs), None)
    total = evaluation.pmi.documents or document_count(evaluation.perplexity.corpus, "validation")
    started = time.monotonic()
    for document, row, values in chunk_rows(evaluation, harness, scorer_dir, journal.rows):
        open_unit.add([row], time.monotonic() - started)
        histogram.add(values)
        histogram.write(out_dir)  # behind the row: a row that it does not count is made again
        progress(document + 1, max(total, document + 1), "pmi documents")
        started = time.monotonic()
    if not journal.rows:
        histogram.write(out_dir)
    yield open_unit.finish(n_expected=histogram.chunks, notes=totals(journal.rows.values()))


# --- The tokens of one phrase ------------------------------------------------------------------


def _run_phrase(
    open_units: list[OpenUnit], evaluation: Evaluation, harness: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    from tokenweight.evaluation.phrase import phrase_rows

    started = time.monotonic()
    progress(0, 1, "phrases")
    scorer_dir = next(iter(open_units[0].job.prepared_dirs), None)
    rows, notes = phrase_rows(evaluation, harness, scorer_dir)
    share = (time.monotonic() - started) / len(open_units)
    progress(1, 1, "phrases")
    for open_unit in open_units:
        own = rows[open_unit.job.unit.task]
        open_unit.journal.rows.clear()  # one pass gives all: what a cut run left is from another one
        open_unit.add(own, share)
        yield open_unit.finish(n_expected=len(own), notes=notes)


# --- The planted judge -------------------------------------------------------------------------


def _run_planted(
    open_units: list[OpenUnit], evaluation: Evaluation, harness: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    from tokenweight.evaluation.planted import sequence_rows

    by_unit = {unit.job.unit: unit for unit in open_units}
    chunk_dir, score_dir = open_units[0].job.prepared_dirs
    known = set.intersection(*(set(unit.journal.rows) for unit in open_units))
    done, total = len(known), evaluation.planted.sequences
    started = time.monotonic()
    for _, rows in sequence_rows(list(by_unit), evaluation.planted, chunk_dir, score_dir, harness, known):
        share = (time.monotonic() - started) / len(by_unit)
        for unit, open_unit in by_unit.items():
            open_unit.add([rows[unit]] if unit in rows else [], share)  # no row: no such token in it
        done += 1
        progress(done, total, "planted sequences")
        started = time.monotonic()
    for open_unit in open_units:
        yield open_unit.finish(n_expected=len(open_unit.journal.rows), notes={"sequences": total})


_RUN = {"perplexity": _run_perplexity, "pmi": _run_pmi, "phrase": _run_phrase, "planted": _run_planted}
