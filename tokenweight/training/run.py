"""Continued pre-training with token weights: the stage `train`, inline or launched, and one process's work in it."""

import json
import os
import shutil
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from tokenweight.context.extend import check_sight, load_config
from tokenweight.errors import UserError
from tokenweight.optional import by_parity, optional_room
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_batch, check_launch
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import Execution, Training
from tokenweight.training import checkpoints, models
from tokenweight.training.kernels import checkpoint_activations, fast_kernels
from tokenweight.training.launch import LAUNCH_FOLDER, Stopped, launch
from tokenweight.training.metrics import StepReports, read_metrics
from tokenweight.training.sequence_parallel import check_sequence_parallel
from tokenweight.training.sequences import (
    Documents,
    TokenRows,
    TrainingRows,
    open_documents,
    open_scores,
    open_tokens,
    window_plan,
)
from tokenweight.training.stages import Train
from tokenweight.webpage import plain_environment

PROBE_TOKENS = 128


def train(stage: Train, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Train as `stage` says and leave out_dir/model (checkpoint) and out_dir/metrics.jsonl (one line per step).

    Whatever an earlier, killed attempt left in out_dir is used: training resumes from its last complete checkpoint, bit
    for bit, or up to rounding where that was split otherwise (:func:`checkpoints.check_resume`). Raises UserError for bad
    input before the model is loaded, StageError where the run cannot end well (the last complete checkpoint stays).
    """
    # 1. What would fail later fails now.
    check(stage, inputs, execution)
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
        launch(fit_here, out_dir, execution, progress)
    # 4. Keep the model and its numbers, not what led to them.
    converted_from = checkpoints.conversions(work_dir)
    for folder in (work_dir, out_dir / LAUNCH_FOLDER):  # the second: of a run that was killed as it ended
        shutil.rmtree(folder, ignore_errors=True)
    return {
        **_summary(read_metrics(out_dir / "metrics.jsonl")),
        "resumed_from_step": checkpoints.checkpoint_step(resume_from) if resume_from else None,
        "skipped_checkpoints": [checkpoint.name for checkpoint in broken],
        "converted_from": converted_from,
        "execution": execution.model_dump(mode="json", exclude={"srun_options"}),  # no hosts, no paths
        "deepspeed_config": deepspeed_config(stage.training, execution) if execution.deepspeed_stage else None,
    }


def check(stage: Train, inputs: Inputs, execution: Execution) -> None:
    """Raise UserError for anything that would fail later."""
    training, scorer, weighting = stage.training, stage.scorer, stage.weighting
    model_dir, chunk_dir = inputs["model"], inputs["chunks"]
    tokens = open_tokens(chunk_dir, 0 if stage.repeats else stage.sequences)
    config = load_config(model_dir)
    context_tokens = config.max_position_embeddings
    check_sight(config, tokens.shape[1], "chunking.long_tokens", model_dir.name)
    if tokens.shape[1] > context_tokens:
        raise UserError(
            f"{chunk_dir}: sequences of {tokens.shape[1]} tokens exceed the model's context of "
            f"{context_tokens}; extend it first"
        )
    check_launch(execution)
    check_sequence_parallel(execution, config, tokens.shape[1])
    check_batch(training, execution)
    check_deepspeed(training, execution)
    if scorer is not None and scorer.precision == "fp8":
        optional_room("fp8", "scorer.precision").check_fp8(models.resolve_device(execution.device))
    window_plan(stage, tokens)
    if documents_of(stage, chunk_dir, tokens) is not None:
        if weighting.needs_short_nll:
            raise UserError(
                f"weighting.score {weighting.label!r}: compares contexts by position, and windows do not end with documents; "
                "give sequences of one document each"
            )
        if execution.sequence_parallel > 1:
            raise UserError(
                f"execution.sequence_parallel: weighting.score {weighting.label!r} keeps a sequence's documents apart, "
                "which processes that share it cannot; set it to 1"
            )


def fit(
    stage: Train, inputs: Inputs, out_dir: Path, execution: Execution, resume_from: Path | None, progress: Progress
) -> None:
    """Train, from `resume_from` where given, and leave out_dir/model, out_dir/metrics.jsonl and reports.

    Precision bf16 means bf16 arithmetic on fp32 parameters, as in the paper's DeepSpeed setup: by DeepSpeed's
    master weights, or without DeepSpeed by autocast (AdamW on bf16 parameters would lose steps of 2e-5). The
    finished checkpoint is saved in bf16 then. Called in every process of a run. Raises Stopped where it was asked to.
    """
    from tokenweight.training.trainer import TokenWeightingTrainer  # imports HF's Trainer, which takes a second

    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:  # of others in this shell
        del os.environ[name]
    model_dir = inputs["model"]
    dtype = torch.bfloat16 if stage.training.precision == "bf16" else torch.float32
    # 1. How: devices, accumulation, checkpoints. Before the model, so that ZeRO-3 can shard it while it loads.
    arguments = training_arguments(stage, out_dir / checkpoints.FOLDER, execution, resume_from)

    # 2. The model, with our head.
    model = models.load_model(
        model_dir,
        dtype if execution.deepspeed_stage else torch.float32,
        rounding=by_parity(stage.parity, models.head_rounding)(frozen=False),
        check_rope=execution.deepspeed_stage == 0,
    )
    offload = execution.offload_activations and arguments.device.type != "cpu"
    checkpoint_activations(model, execution.checkpointing, offload=offload)
    bos = models.bos_token_id(models.load_tokenizer(model_dir), model.config)

    # 3. The data, with frozen scores if there are any.
    tokens = open_tokens(inputs["chunks"])
    scores = open_scores(inputs["scores"], stage.sequences) if "scores" in inputs else None
    documents = documents_of(stage, inputs["chunks"], tokens)
    if documents is not None:
        models.check_documents_apart(model, model_dir)
    rows = TrainingRows(tokens, stage.sequences, model.config.vocab_size, scores, documents)

    # 4. Train.
    reports = None
    if arguments.process_index == 0:
        done_steps = checkpoints.checkpoint_step(resume_from) if resume_from else 0
        reports = StepReports(out_dir, execution.report_to, stage.training.steps, progress, done_steps)
    trainer = TokenWeightingTrainer(model, arguments, rows, stage, execution, bos_token_id=bos, reports=reports)
    try:
        with fast_kernels(model, execution), closing(reports) if reports is not None else nullcontext():
            trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
    finally:
        torch.use_deterministic_algorithms(False)  # as asked, the Trainer switched them on for the whole process
    if trainer.stopped_after is not None:
        raise Stopped(
            f"training stopped on request after step {trainer.stopped_after} of {stage.training.steps}, "
            "with a checkpoint; run again to resume"
        )

    # 5. Save and validate.
    probe = torch.from_numpy(np.asarray(tokens[:1, :PROBE_TOKENS], dtype=np.int64))
    models.save_checkpoint(trainer, model_dir, out_dir / "model", dtype, probe)


def training_arguments(stage: Train, work_dir: Path, execution: Execution, resume_from: Path | None = None) -> Any:
    """HF TrainingArguments of a run, by trainer.json.jinja."""
    from transformers import TrainingArguments

    training = stage.training
    device = models.resolve_device(execution.device, int(os.environ.get("LOCAL_RANK", "0")))
    on_cpu = device.type == "cpu"
    if on_cpu and execution.deepspeed_stage:
        start_deepspeed_on_cpu()
    deepspeed = deepspeed_config(training, execution) if execution.deepspeed_stage else None
    if deepspeed is not None and resume_from is not None and checkpoints.needs_resharding(resume_from, execution):
        deepspeed["checkpoint"] = {"load_universal": True}
    given = _rendered("trainer", training, execution, seed=stage.seed, on_cpu=on_cpu)
    arguments = TrainingArguments(output_dir=str(work_dir), deepspeed=deepspeed, **given)
    if execution.launcher == "inline":
        arguments._n_gpu = min(arguments.n_gpu, 1)  # never DataParallel over whatever GPUs are visible
    return arguments


def deepspeed_config(training: Training, execution: Execution) -> dict[str, Any]:
    """DeepSpeed's configuration for `execution.deepspeed_stage` (Appendix B: ZeRO level 3), without any "auto".

    bf16 parameters with fp32 master weights, gradients accumulated in fp32 (the default would be bf16), and
    DeepSpeed's AdamW over all parameters, so that weight decay also acts on norms, as in the paper's setup.
    """
    return _rendered("deepspeed", training, execution)


def _rendered(name: str, training: Training, execution: Execution, **given: Any) -> dict[str, Any]:
    template = plain_environment(Path(__file__).parent).get_template(f"{name}.json.jinja")
    values: dict[str, Any] = json.loads(template.render(training=training, execution=execution, **given))
    return values


def check_deepspeed(training: Training, execution: Execution) -> None:
    """Show the configuration to DeepSpeed's own classes, where a stage of ZeRO is asked for.

    Raises UserError for what DeepSpeed would refuse once all processes had loaded the model, or if it cannot be imported.
    """
    if not execution.deepspeed_stage:
        return
    config = deepspeed_config(training, execution)
    # DeepSpeed counts the processes that run: this one.
    config["train_batch_size"] = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    try:
        from deepspeed.runtime.config import DeepSpeedConfig

        DeepSpeedConfig(config)
    except ImportError as error:
        raise UserError(f"deepspeed: installed, but cannot be imported ({error}); install it again") from error
    except (AssertionError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = one_line(error) if isinstance(error, ValidationError) else error
        raise UserError(f"deepspeed: refuses its configuration ({reason}); change the execution's settings") from error


def start_deepspeed_on_cpu() -> None:
    """Start DeepSpeed over gloo and tell accelerate, which by itself takes it up on accelerators only."""
    import deepspeed
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True, backend="gloo").distributed_type = DistributedType.DEEPSPEED


def documents_of(stage: Train, chunk_dir: Path, tokens: TokenRows) -> Documents | None:
    """The documents that attention and weights keep apart; None where weights do not ask, or sequences have one each."""
    if not stage.weighting.by_document:
        return None
    documents = open_documents(chunk_dir, min(stage.sequences, len(tokens)))
    return documents if documents.several else None


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
