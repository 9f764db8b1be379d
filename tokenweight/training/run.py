"""Continued pre-training with token weights: the stage `train`, inline or launched."""

from __future__ import annotations

import shutil
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenweight.context.extend import load_config
from tokenweight.errors import UserError
from tokenweight.optional import optional_room
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_batch, check_launch
from tokenweight.recipes.schema import Execution
from tokenweight.training import checkpoints
from tokenweight.training.deepspeed_config import check_deepspeed
from tokenweight.training.fit import fit, window_plan
from tokenweight.training.launch import LAUNCH_FOLDER, launch
from tokenweight.training.models import resolve_device
from tokenweight.training.reporting import read_metrics
from tokenweight.training.sequence_parallel import check_sequence_parallel
from tokenweight.training.sequences import open_tokens
from tokenweight.training.stages import Train


def train(
    stage: Train,
    inputs: Inputs,
    out_dir: Path,
    execution: Execution,
    progress: Progress,
    *,
    repeat_sequences: bool = False,
) -> dict[str, Any]:
    """Train as `stage` says and leave out_dir/model (checkpoint) and out_dir/metrics.jsonl (one line per step).

    Whatever an earlier, killed attempt left in out_dir is used: training resumes from its last complete checkpoint,
    bit for bit as if it had not been interrupted; from one that was split otherwise only with execution.convert_checkpoints,
    and up to rounding (the summary's converted_from says from which). `repeat_sequences`: the corpus may be read more than
    once. Returns a summary for the record. Raises UserError for bad input before the model is loaded, StageError where the
    run cannot end well (the last complete checkpoint stays).
    """
    # 1. What would fail later fails now.
    config = check(stage, inputs, execution, repeat_sequences)
    out_dir.mkdir(parents=True, exist_ok=True)
    work_dir = out_dir / checkpoints.FOLDER
    resume_from, broken = checkpoints.last_complete(work_dir)
    if not (out_dir / "model").is_dir():
        # 2. What an interrupted attempt left.
        if resume_from is not None:
            checkpoints.prepare_resume(resume_from, execution)
        checkpoints.delete_broken(broken)
        # 3. Train, in this process or in several.
        fit_here = partial(fit, stage, dict(inputs), out_dir, execution, resume_from)
        if execution.launcher == "inline":
            fit_here(progress=progress)
        else:
            launch(fit_here, out_dir, execution, progress, stops_softly=True)
    # 4. Keep the model and its numbers, not what led to them.
    converted_from = checkpoints.conversions(work_dir)
    for folder in (work_dir, out_dir / LAUNCH_FOLDER):  # the second: of a run that was killed as it ended
        shutil.rmtree(folder, ignore_errors=True)
    versions = ("torch", "transformers", "accelerate", *(["deepspeed"] if execution.deepspeed_stage else []))
    return {
        **_summary(read_metrics(out_dir / "metrics.jsonl")),
        "resumed_from_step": checkpoints.checkpoint_step(resume_from) if resume_from else None,
        "skipped_checkpoints": [checkpoint.name for checkpoint in broken],
        "converted_from": converted_from,
        "execution": execution.model_dump(mode="json", exclude={"srun_options"}),  # no hosts, no paths
        "deepspeed_config": config,
        "trained_with": {name: metadata.version(name) for name in versions},
    }


def check(stage: Train, inputs: Inputs, execution: Execution, repeat_sequences: bool) -> dict[str, Any] | None:
    """Raise UserError for anything that would fail later; DeepSpeed's configuration if it is used."""
    training, scorer, weighting = stage.training, stage.scorer, stage.weighting
    model_dir, chunk_dir = inputs["model"].path, inputs["chunks"].path
    tokens = open_tokens(chunk_dir)
    if len(tokens) < stage.sequences and not repeat_sequences:
        raise UserError(
            f"{chunk_dir}: {len(tokens)} sequences, but {training.steps} steps of "
            f"{training.sequences_per_step} need {stage.sequences}; give a larger corpus or fewer steps"
        )
    config = load_config(model_dir)
    context_tokens = config.max_position_embeddings
    if tokens.shape[1] > context_tokens:
        raise UserError(
            f"{chunk_dir}: sequences of {tokens.shape[1]} tokens exceed the model's context of "
            f"{context_tokens}; extend it first"
        )
    check_launch(execution)
    check_sequence_parallel(execution, config, tokens.shape[1])
    check_batch(training, execution)
    deepspeed_config = check_deepspeed(training, execution)
    if (scorer is not None and scorer.kind == "frozen" and weighting.needs_short_nll) != ("scores" in inputs):
        raise UserError("scores: belong to a frozen scorer and only to it; give them exactly there")
    if weighting.needs_short_nll and scorer is None:
        raise UserError(f"scorer: score {weighting.score!r} compares two contexts; name a scorer")
    if scorer is not None and scorer.precision == "fp8":
        if not weighting.needs_short_nll:
            raise UserError(f"scorer.precision: score {weighting.score!r} needs no scoring pass; leave it out")
        optional_room("fp8", "scorer.precision").check_fp8(resolve_device(execution.device))
    try:
        window_plan(stage, tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error
    return deepspeed_config


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the record says of all steps; means are over time, as tokens per second."""
    seconds = sum(row["seconds"] for row in rows)
    overlaps = [row["fp8_overlap"] for row in rows if "fp8_overlap" in row]  # the first step's, and after each resume
    mfus = [row["mfu"] * row["seconds"] for row in rows if row["mfu"] is not None]
    return {
        "steps": len(rows),
        "effective_steps": sum(row["learning_rate"] > 0 for row in rows),  # warm-up begins at 0
        "predictions": int(sum(row["predictions"] for row in rows)),
        "seconds": round(seconds, 3),
        "tokens_per_second": sum(row["tokens_per_second"] * row["seconds"] for row in rows) / seconds,
        "mfu": sum(mfus) / seconds if len(mfus) == len(rows) else None,
        "peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows),
        "first_nll": rows[0]["nll"],
        "last_nll": rows[-1]["nll"],
        "last_weighted_nll": rows[-1]["weighted_nll"],
        "zero_weight_share": sum(row["zero_weight_share"] for row in rows) / len(rows),
        **({"fp8_overlap": min(overlaps)} if overlaps else {}),
    }
