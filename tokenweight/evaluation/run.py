"""Evaluate one model on many units: resumable, batched across units, one loaded model.

Each unit writes `rows.parquet` and `summary.json` into its own directory and is yielded as soon as it is complete;
what an unfinished unit has so far is in its journal, so that a killed run repeats at most one batch. Of the backends
that run models `hf` is in the core; others are optional rooms that are looked up here and nowhere else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import PROMPT_FLAGS, Benchmark, Unit, UnitRun
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import JOURNAL_NAME, ROWS_NAME, SUMMARY_NAME, Journal, read_rows, write_unit
from tokenweight.evaluation.samples import OutputBenchmark, read_prompts
from tokenweight.evaluation.units import BENCHMARKS, benchmark_of
from tokenweight.optional import optional_room
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Store, peak_memory_bytes, read_record
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Backend, Evaluation, Execution, Precision


def evaluate_checkpoint(
    checkpoint_dir: Path,
    runs: Sequence[UnitRun],
    evaluation: Evaluation,
    context_tokens: int,
    execution: Execution,
    progress: Progress = no_progress,
    loaded: Callable[[], LoadedModel] | None = None,
) -> Iterator[Unit]:
    """Evaluate a checkpoint directory on units; yields each unit when its rows are complete, at once where they are.

    `context_tokens` is the longest input of the model: nothing longer is ever sent. Progress counts samples. `loaded`
    gives the model where the caller keeps it for several benchmarks. UserError: data is missing or not in its official
    layout (before the model loads). StageError: a prepared prompt does not fit, or was prepared for another tokenizer.
    """
    left: dict[Benchmark, list[UnitRun]] = {}
    for run in runs:
        run.out_dir.mkdir(parents=True, exist_ok=True)
        if (run.out_dir / ROWS_NAME).exists():
            (run.out_dir / JOURNAL_NAME).unlink(missing_ok=True)  # of a run that was killed before it could
            yield run.unit
        else:
            benchmark = benchmark_of(run.unit)
            if not benchmark.prompted:  # whose texts are in the prompts
                benchmark.raw_files(run.unit, evaluation)
            left.setdefault(benchmark, []).append(run)
    if left:
        given = checkpoint_dir, context_tokens, execution, evaluation.precision
        model = loaded() if loaded else load(evaluation.backend, *given)
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # Not cuDNN's: on a GPU its sums do not repeat, and each new length takes it tens of milliseconds to plan.
        kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        for benchmark, own in left.items():
            with sdpa_kernel(kernels):
                yield from _run(benchmark, own, evaluation, model, progress)


def _run(
    benchmark: Benchmark, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, progress: Progress
) -> Iterator[Unit]:
    journals = {run.unit: Journal(run.out_dir) for run in runs}
    started = time.monotonic()
    for step in benchmark.steps(runs, evaluation, model, {unit: journal.rows for unit, journal in journals.items()}):
        for unit, row in ((unit, row) for unit, rows in step.rows.items() for row in rows):
            if not math.isfinite(row.score):
                raise StageError(f"{unit.id}: sample {row.doc_id} scores {row.score}; the checkpoint may be damaged")
        seconds_a_row = (time.monotonic() - started) / max(1, sum(map(len, step.rows.values())))
        for unit, rows in step.rows.items():
            journals[unit].append(rows, seconds_a_row)
        progress(step.done, max(step.total, step.done), f"{benchmark.name} samples")
        for unit, notes in step.complete.items():
            rows, seconds = list(journals[unit].rows.values()), journals[unit].seconds
            facts = {**notes, "peak_memory_bytes": peak_memory_bytes()}
            content = benchmark.summary(unit, rows, seconds, **facts)
            write_unit(rows, content, journals[unit].out_dir)
            yield unit
        started = time.monotonic()


def check_backend(backend: Backend, execution: Execution | None = None) -> None:
    """UserError where the backend cannot run here, or as `execution` says, in one line, before anything is made."""
    if backend != "hf":
        optional_room(f"evaluation.{backend}", f"backend {backend}").check(execution)


def load(
    backend: Backend, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision = "fp32"
) -> LoadedModel:
    """The checkpoint in that precision. UserError: the backend cannot run here, or cannot run this checkpoint."""
    given = checkpoint_dir, context_tokens, execution, precision
    if backend == "hf":
        from tokenweight.evaluation.hf_model import HFModel

        return HFModel(*given)
    room = optional_room(f"evaluation.{backend}", f"backend {backend}").__name__
    model: LoadedModel = getattr(import_module(f"{room}.model"), f"{backend.title()}Model")(*given)
    return model


def evaluation_execution(how: ModelOptions) -> Execution:
    """The scale's execution on all visible GPUs, or `how.processes`, side by side. UserError: there are too few."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = "cpu" if how.endpoint else how.device or ("cuda" if how.scale == "paper" else "auto")
    if wanted == "cuda" and not gpus:
        raise UserError("device cuda: torch sees no GPU; run where there is one, or give --device cpu")
    on_gpus, processes = wanted != "cpu" and gpus > 0, how.processes or 1
    needed = processes * how.tensor_parallel
    if (on_gpus or how.tensor_parallel > 1) and needed > gpus:
        asked = f"--processes {processes} with --tensor-parallel {how.tensor_parallel}"
        raise UserError(f"{asked}: {needed} GPUs are needed, torch sees {gpus}; give fewer")
    return Execution(
        device=wanted,
        eval_batch_sequences=how.batch_size or default_execution(how.scale).eval_batch_sequences,
        gpus=(how.processes or "all") if on_gpus else 1,
        slots=how.processes,
        tensor_parallel=how.tensor_parallel,
        endpoint=how.endpoint,
    )


# --- Stored outputs, scored again, without the model: a changed metric costs seconds, not an evaluation. A unit's identity
# holds everything that its scores depend on. Where the store has the same unit, scored by another metric (its version, its
# packages, LongBench's first-line rule), its outputs are the ones that the model would give.


class StoredOutputs:
    """Which finished units of a store hold the outputs that another unit, not there yet, would ask a model for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_name: dict[str, list[Path]] = {}
        for path in sorted((store.root / "evaluate").glob("[!.]*-????????")):
            self._by_name.setdefault(path.name[:-9], []).append(path)

    def of(self, identity: Identity) -> Path | None:
        """The artifact of the same unit under another scoring, whole; None if there is none."""
        if not isinstance(BENCHMARKS[identity.config["unit"]["benchmark"]], OutputBenchmark):
            return None
        return next((path for path in self._by_name.get(identity.name, ()) if self._holds(path, identity)), None)

    def _holds(self, path: Path, identity: Identity) -> bool:
        record = read_record(path)
        if record is None or (record.get("stage_version"), record["inputs"]) != (identity.version, identity.inputs):
            return False
        other = replace(identity, config=record["config"])
        same = _unscored(other) == _unscored(identity) and self._store.path(other) == path
        return same and self._store.state(other, digests=True).kind == "complete"


def _unscored(identity: Identity) -> dict[str, Any]:
    """A unit's configuration without what its outputs do not depend on: metric, LongBench's first-line rule."""
    name, evaluation = identity.config["unit"]["benchmark"], identity.config["evaluation"]
    asked = {key: value for key, value in evaluation[name].items() if key not in BENCHMARKS[name].scoring_fields}
    return {**identity.config, "scoring": None, "evaluation": {**evaluation, name: asked}}


def rescore_unit(
    scored_dir: Path, unit: Unit, evaluation: Evaluation, prepared_dir: Path | None, out_dir: Path
) -> None:
    """Write rows (filtered, metric and scores made anew) and summary of a unit into `out_dir` from the outputs in
    `scored_dir`; LongBench's prompts in `prepared_dir` have the class names of trec."""
    benchmark, rows = benchmark_of(unit), []
    assert isinstance(benchmark, OutputBenchmark)
    classes = {line["doc_id"]: line["all_classes"] for line in (read_prompts(prepared_dir) if prepared_dir else ())}
    for row in read_rows(scored_dir):
        references = json.loads(row.reference)
        scored = benchmark.score(unit.task, row.output, references, classes.get(row.doc_id), evaluation)
        rows.append(replace(row, metric=benchmark.metric(unit.task, evaluation), **vars(scored)))
    before = json.loads((scored_dir / SUMMARY_NAME).read_text("utf-8"))
    content = benchmark.summary(unit, rows, before["seconds"])
    kept = {flag for flag in before["flags"] if flag in PROMPT_FLAGS}
    content |= {"flags": sorted({*content["flags"], *kept}), "outputs_from": scored_dir.name}
    write_unit(rows, content, out_dir)
