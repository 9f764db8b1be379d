"""Continued pre-training with token weights: the stage `train`, inline or launched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tokenweight.context.extend import load_config
from tokenweight.errors import UserError
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.checkpoints import (
    FOLDER,
    check_resume,
    checkpoint_step,
    conversions,
    delete_broken,
    last_whole,
    made_with,
    needs_resharding,
    note_conversion,
    split_of,
)
from tokenweight.training.fit import fit, window_plan
from tokenweight.training.launch import launch
from tokenweight.training.metrics import MetricsFile
from tokenweight.training.reporting import check_reports
from tokenweight.training.request import TrainRequest
from tokenweight.training.resharding import reshard
from tokenweight.training.sequence_parallel import check_sequence_parallel
from tokenweight.training.sequences import open_tokens


def train(request: TrainRequest, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Train as `request` says and leave out_dir/model (checkpoint) and out_dir/metrics.jsonl (one line per step).

    Whatever an earlier, killed attempt left in out_dir is used: training goes on from its last whole checkpoint,
    bit for bit as if it had not been cut; from one that was split otherwise only with execution.convert_checkpoints,
    and up to rounding (the summary's converted_from says from which). Returns a summary for the record. Raises
    UserError for bad input before the model is loaded, StageError where the run cannot end well (the last whole
    checkpoint stays).
    """
    check(request, execution)
    out_dir.mkdir(parents=True, exist_ok=True)
    work_dir, metrics_file = out_dir / FOLDER, MetricsFile(out_dir / "metrics.jsonl")
    resume_from, broken = last_whole(work_dir)
    if not (out_dir / "model").is_dir():
        if resume_from is not None:
            check_resume(resume_from, execution)
            if made_with(resume_from) != split_of(execution):
                note_conversion(resume_from)
            if needs_resharding(resume_from, execution):
                reshard(resume_from)
        delete_broken(broken)
        if execution.launcher == "torchrun":
            job = {
                "request": request.model_dump(mode="json", by_alias=True),
                "resume_from": str(resume_from) if resume_from else None,
            }
            launch("train", job, out_dir, execution, progress)
        else:
            fit(request, out_dir, execution, progress, resume_from)
    converted_from = conversions(work_dir)
    shutil.rmtree(work_dir, ignore_errors=True)
    return {**summary(request, metrics_file, resume_from, broken), "converted_from": converted_from}


def check(request: TrainRequest, execution: Execution) -> None:
    """Raise UserError for anything that would fail later."""
    check_reports(execution.report_to)
    training, scorer = request.training, request.scorer
    tokens = open_tokens(request.chunk_dir)
    if len(tokens) < request.rows and not request.repeat_rows:
        raise UserError(
            f"{request.chunk_dir}: {len(tokens)} sequences, but {training.steps} steps of "
            f"{training.sequences_per_step} need {request.rows}; give a larger corpus or fewer steps"
        )
    config = load_config(request.model_dir)
    context_tokens = config.max_position_embeddings
    if tokens.shape[1] > context_tokens:
        raise UserError(
            f"{request.chunk_dir}: sequences of {tokens.shape[1]} tokens exceed the model's context of "
            f"{context_tokens}; extend it first"
        )
    check_sequence_parallel(execution, config, tokens.shape[1])
    per_pass = execution.sequences_per_pass
    if training.sequences_per_step % per_pass:
        raise UserError(
            f"training.sequences_per_step: {training.sequences_per_step} is not a multiple of processes times "
            f"micro_batch_sequences{' over sequence_parallel' if execution.sequence_parallel > 1 else ''} ({per_pass}); "
            "change one of them"
        )
    if execution.launcher == "inline" and (execution.processes > 1 or execution.deepspeed_stage):
        raise UserError("execution.launcher: 'inline' is one process without DeepSpeed; set it to 'torchrun'")
    if (scorer is not None and scorer.kind == "frozen" and request.needs_short_nll) != (request.score_dir is not None):
        raise UserError("score_dir: belongs to a frozen scorer and only to it; give it exactly there")
    if request.needs_short_nll and scorer is None:
        raise UserError(f"scorer: score {request.weighting.score!r} compares two contexts; name a scorer")
    try:
        window_plan(request, tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error


def summary(
    request: TrainRequest, metrics_file: MetricsFile, resume_from: Path | None, broken: list[Path]
) -> dict[str, Any]:
    """What the record tells of a finished run."""
    rows = metrics_file.read()
    seconds = sum(row["seconds"] for row in rows)
    mfus = [row["mfu"] * row["seconds"] for row in rows if row["mfu"] is not None]
    return {
        "steps": len(rows),
        "effective_steps": sum(row["learning_rate"] > 0 for row in rows),  # warm-up begins at 0
        "predictions": int(sum(row["predictions"] for row in rows)),
        "seconds": round(seconds, 3),
        "tokens_per_second": sum(row["tokens_per_second"] * row["seconds"] for row in rows) / seconds,
        "mfu": sum(mfus) / seconds if len(mfus) == len(rows) else None,  # means over time, as tokens/s
        "peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows),
        "first_nll": rows[0]["nll"],
        "last_nll": rows[-1]["nll"],
        "last_weighted_nll": rows[-1]["weighted_nll"],
        "zero_weight_share": sum(row["zero_weight_share"] for row in rows) / len(rows),
        "resumed_from_step": checkpoint_step(resume_from) if resume_from else None,
        "skipped_checkpoints": [checkpoint.name for checkpoint in broken],
    }
