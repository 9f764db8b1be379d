"""Continued pre-training with token weights: the stage `train`, inline or launched."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenweight.context.extend import load_config
from tokenweight.errors import UserError
from tokenweight.optional import optional_room
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_batch, check_launch
from tokenweight.recipes.schema import Execution
from tokenweight.training.checkpoints import (
    FOLDER,
    check_resume,
    checkpoint_step,
    conversions,
    delete_broken,
    last_complete,
    made_with,
    needs_resharding,
    note_conversion,
    split_of,
)
from tokenweight.training.deepspeed_config import check_deepspeed, deepspeed_config
from tokenweight.training.fit import fit, window_plan
from tokenweight.training.launch import LAUNCH_FOLDER, launch
from tokenweight.training.metrics import MetricsFile
from tokenweight.training.models import resolve_device
from tokenweight.training.request import TrainRequest
from tokenweight.training.resharding import reshard
from tokenweight.training.sequence_parallel import check_sequence_parallel
from tokenweight.training.sequences import open_tokens


def train(request: TrainRequest, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Train as `request` says and leave out_dir/model (checkpoint) and out_dir/metrics.jsonl (one line per step).

    Whatever an earlier, killed attempt left in out_dir is used: training resumes from its last complete checkpoint,
    bit for bit as if it had not been interrupted; from one that was split otherwise only with execution.convert_checkpoints,
    and up to rounding (the summary's converted_from says from which). Returns a summary for the record. Raises
    UserError for bad input before the model is loaded, StageError where the run cannot end well (the last complete
    checkpoint stays).
    """
    # 1. What would fail later fails now.
    check(request, execution)
    out_dir.mkdir(parents=True, exist_ok=True)
    work_dir, metrics_file = out_dir / FOLDER, MetricsFile(out_dir / "metrics.jsonl")
    resume_from, broken = last_complete(work_dir)
    if not (out_dir / "model").is_dir():
        # 2. What an interrupted attempt left.
        if resume_from is not None:
            prepare_resume(resume_from, execution)
        delete_broken(broken)
        # 3. Train, in this process or in several.
        if execution.launcher == "inline":
            fit(request, out_dir, execution, progress, resume_from)
        else:
            job = {
                "request": request.model_dump(mode="json", by_alias=True),
                "resume_from": str(resume_from) if resume_from else None,
            }
            launch("train", job, out_dir, execution, progress)
    # 4. Keep the model and its numbers, not what led to them.
    converted_from = conversions(work_dir)
    for folder in (work_dir, out_dir / LAUNCH_FOLDER):  # the second: of a run that was killed as it ended
        shutil.rmtree(folder, ignore_errors=True)
    return {
        **summary(request, metrics_file, resume_from, broken),
        **how_it_ran(request, execution),
        "converted_from": converted_from,
    }


def prepare_resume(checkpoint: Path, execution: Execution) -> None:
    """Make a checkpoint that was split otherwise readable for this run; UserError where that is not asked for."""
    check_resume(checkpoint, execution)
    if made_with(checkpoint) != split_of(execution):
        note_conversion(checkpoint)
    if needs_resharding(checkpoint, execution):
        reshard(checkpoint)


def check(request: TrainRequest, execution: Execution) -> None:
    """Raise UserError for anything that would fail later."""
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
    check_launch(execution)
    check_sequence_parallel(execution, config, tokens.shape[1])
    check_batch(training, execution)
    check_deepspeed(training, execution)
    if (scorer is not None and scorer.kind == "frozen" and request.needs_short_nll) != (request.score_dir is not None):
        raise UserError("score_dir: belongs to a frozen scorer and only to it; give it exactly there")
    if request.needs_short_nll and scorer is None:
        raise UserError(f"scorer: score {request.weighting.score!r} compares two contexts; name a scorer")
    if scorer is not None and scorer.precision == "fp8":
        if not request.needs_short_nll:
            raise UserError(f"scorer.precision: score {request.weighting.score!r} needs no scoring pass; leave it out")
        optional_room("fp8", "scorer.precision").check_fp8(resolve_device(execution.device))
    try:
        window_plan(request, tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error


def how_it_ran(request: TrainRequest, execution: Execution) -> dict[str, Any]:
    """What the record says of launcher, processes, DeepSpeed's configuration and versions; no hosts, no paths."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "accelerate")}
    if execution.deepspeed_stage:
        versions["deepspeed"] = metadata.version("deepspeed")
    uses_deepspeed = execution.deepspeed_stage > 0
    return {
        "execution": execution.model_dump(mode="json", exclude={"srun_options"}),
        "deepspeed_config": deepspeed_config(request.training, execution) if uses_deepspeed else None,
        "trained_with": versions,
    }


def summary(
    request: TrainRequest, metrics_file: MetricsFile, resume_from: Path | None, broken: list[Path]
) -> dict[str, Any]:
    """What the record says of a finished run."""
    rows = metrics_file.read()
    seconds = sum(row["seconds"] for row in rows)
    overlaps = [row["fp8_overlap"] for row in rows if "fp8_overlap" in row]  # the first step's, and after each resume
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
        **({"fp8_overlap": min(overlaps)} if overlaps else {}),
    }
