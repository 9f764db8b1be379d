"""One process's work in a training run, in named phases."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokenweight.optional import by_parity
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.activations import attention_kernels, checkpoint_activations
from tokenweight.training.checkpoints import FOLDER, checkpoint_step, needs_resharding
from tokenweight.training.deepspeed_config import deepspeed_config
from tokenweight.training.fused import fused_elementwise
from tokenweight.training.launch import LAUNCH_FOLDER
from tokenweight.training.models import (
    bos_token_id,
    head_rounding,
    load_model,
    load_tokenizer,
    resolve_device,
    vocabulary_sha256,
)
from tokenweight.training.quiet import quiet_transformers
from tokenweight.training.reporting import StepReports
from tokenweight.training.saving import save_checkpoint
from tokenweight.training.score_store import open_scores
from tokenweight.training.sequence_parallel import share_sequences
from tokenweight.training.sequences import TokenRows, TrainingRows, open_tokens
from tokenweight.training.stages import Train
from tokenweight.training.stopping import Stopped, stop_files
from tokenweight.weighting.windows import WindowPlan, plan_windows

PROBE_TOKENS = 128


def fit(
    stage: Train,
    inputs: Inputs,
    out_dir: Path,
    execution: Execution,
    resume_from: Path | None,
    progress: Progress,
) -> None:
    """Train, from `resume_from` where given, and leave out_dir/model, out_dir/metrics.jsonl and reports.

    Precision bf16 means bf16 arithmetic on fp32 parameters, as in the paper's DeepSpeed setup: by DeepSpeed's
    master weights, or without DeepSpeed by autocast (AdamW on bf16 parameters would lose steps of 2e-5). The
    finished checkpoint is saved in bf16 then. Called in every process of a run. Raises Stopped where it was asked to
    stop (tokenweight.training.stopping).
    """
    from tokenweight.training.trainer import TokenWeightingTrainer  # imports HF's Trainer

    model_dir = inputs["model"].path
    dtype = torch.bfloat16 if stage.training.precision == "bf16" else torch.float32
    with quiet_transformers():
        # 1. How: devices, accumulation, checkpoints. Before the model, so that ZeRO-3 can shard it while it loads.
        resharded = resume_from is not None and needs_resharding(resume_from, execution)
        arguments = training_arguments(stage, out_dir / FOLDER, execution, resharded=resharded)

        # 2. The model, with our head.
        model = load_model(
            model_dir,
            dtype if execution.deepspeed_stage else torch.float32,
            rounding=by_parity(stage.parity, head_rounding)(frozen=False),
            check_rope=execution.deepspeed_stage == 0,
        )
        checkpoint_activations(model, execution.checkpointing)
        tokenizer = load_tokenizer(model_dir)

        # 3. The data, with frozen scores if there are any.
        tokens = open_tokens(inputs["chunks"].path)
        plan = window_plan(stage, tokens)
        scores = None
        if plan is not None and "scores" in inputs:
            vocabulary = vocabulary_sha256(tokenizer)
            scores = open_scores(
                inputs["scores"].path, tokens, plan, sequences=stage.sequences, vocabulary_sha256=vocabulary
            )
        rows = TrainingRows(tokens, stage.sequences, model.config.vocab_size, scores)

        # 4. Train.
        reports = None
        if arguments.process_index == 0:
            reports = StepReports(out_dir, execution.report_to, checkpoint_step(resume_from) if resume_from else 0)
        trainer = TokenWeightingTrainer(
            model,
            arguments,
            rows,
            stage,
            plan=plan,
            bos_token_id=bos_token_id(tokenizer, model.config),
            reports=reports,
            progress=progress,
            execution=execution,
            shard=share_sequences(model, execution, tokens.shape[1]),
            stop_files=stop_files(out_dir / LAUNCH_FOLDER),
        )
        with (
            attention_kernels(),
            fused_elementwise(model) if execution.fused else nullcontext(),
            closing(reports) if reports is not None else nullcontext(),
        ):
            trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
        if trainer.stopped_after is not None:
            raise Stopped(
                f"training stopped as asked after step {trainer.stopped_after} of {stage.training.steps}, "
                "with a checkpoint; run again to resume"
            )

        # 5. Save and validate.
        probe = torch.from_numpy(np.asarray(tokens[:1, :PROBE_TOKENS], dtype=np.int64))
        save_checkpoint(trainer, model_dir, out_dir / "model", dtype, probe)


def training_arguments(stage: Train, work_dir: Path, execution: Execution, *, resharded: bool = False) -> Any:
    """HF TrainingArguments of a run; the optimizer and the schedule are the trainer's own.

    (What they say of the optimizer again is what HF compares with the DeepSpeed configuration.) `resharded`: the run
    resumes from a checkpoint whose parts were joined.
    """
    from transformers import TrainingArguments

    training = stage.training
    device = resolve_device(execution.device, int(os.environ.get("LOCAL_RANK", "0")))
    on_cpu = device.type == "cpu"
    if on_cpu and execution.deepspeed_stage:
        start_deepspeed_on_cpu()
    deepspeed = deepspeed_config(training, execution) if execution.deepspeed_stage else None
    if deepspeed is not None and resharded:
        deepspeed["checkpoint"] = {"load_universal": True}
    arguments = TrainingArguments(
        output_dir=str(work_dir),
        max_steps=training.steps,
        per_device_train_batch_size=execution.micro_batch_sequences,
        gradient_accumulation_steps=training.sequences_per_step // execution.sequences_per_pass,
        learning_rate=training.learning_rate,
        adam_beta1=training.beta1,
        adam_beta2=training.beta2,
        adam_epsilon=training.epsilon,
        weight_decay=training.weight_decay,
        max_grad_norm=training.gradient_clip,
        bf16=training.precision == "bf16",
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=min(execution.save_every_steps, training.steps),
        save_total_limit=2,
        seed=stage.seed,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and execution.processes > 1 else None,
        ddp_find_unused_parameters=False,
        dataloader_drop_last=True,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
        label_names=[],
        disable_tqdm=True,
        report_to=[],
        deepspeed=deepspeed,
        accelerator_config={"use_configured_state": on_cpu and execution.deepspeed_stage > 0},
    )
    if execution.launcher == "inline":
        arguments._n_gpu = min(arguments.n_gpu, 1)  # never DataParallel over whatever GPUs are visible
    return arguments


def start_deepspeed_on_cpu() -> None:
    """Start DeepSpeed over gloo and tell accelerate, which by itself takes it up on accelerators only."""
    import deepspeed
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True, backend="gloo").distributed_type = DistributedType.DEEPSPEED


def window_plan(stage: Train, tokens: TokenRows) -> WindowPlan | None:
    """The scorer's windows over the chunk artifact's sequences; None where weights need no short context."""
    if not stage.weighting.needs_short_nll or stage.scorer is None:
        return None
    make_plan = by_parity(stage.parity, plan_windows) if stage.scores_itself else plan_windows
    return make_plan(tokens.shape[1], stage.scorer.short_tokens, stage.scorer.stride_tokens)
