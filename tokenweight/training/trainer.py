"""The trainer: HF Trainer with the paper's loss. Everything else is its own loop.

One optimizer step: gather its micro-batches, score them on short windows (unfrozen only; parameters are constant
within a step), then per micro-batch the weighted loss (tokenweight.weighting.step).
"""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tokenweight.context.rope import assert_rope, restore_rope
from tokenweight.errors import StageError
from tokenweight.optional import by_parity, optional_room
from tokenweight.recipes.schema import Execution, Training
from tokenweight.training.checkpoints import last_complete, mark_complete
from tokenweight.training.flops import peak_flops, train_flops
from tokenweight.training.launch import asked_to_stop
from tokenweight.training.metrics import Row, StepMetrics, StepReports, same_on_all_ranks
from tokenweight.training.sequence_parallel import share_sequences, shared_rows
from tokenweight.training.sequences import TrainingRows, window_plan
from tokenweight.training.stages import Train
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.weights import sparse
from tokenweight.weighting.windows import score_windows

Batch = dict[str, Tensor]


class TokenWeightingTrainer(Trainer, TrainerCallback):
    """HF Trainer whose loss is the weighted NLL of Eq. 2, by the chunked fp32 head; it hears its own loop's events."""

    model: Any  # HF's types allow None before its loop sets these
    optimizer: Any
    lr_scheduler: Any
    train_dataset: Any

    loss_is_scaled_for_ga = False  # our loss is a mean over sequences: divide it by the accumulation steps

    def __init__(
        self,
        model: Any,
        arguments: TrainingArguments,
        rows: TrainingRows,
        stage: Train,
        execution: Execution,
        *,
        bos_token_id: int | None,
        reports: StepReports | None,
    ) -> None:
        self.plan, self.shard = window_plan(stage, rows.tokens), share_sequences(model, execution, rows.tokens.shape[1])
        super().__init__(
            model=model, args=arguments, train_dataset=rows, data_collator=torch.utils.data.default_collate
        )
        self.stage, self.execution, self.bos_token_id = stage, execution, bos_token_id
        self.stopped_after: int | None = None  # the step at whose end the run stopped, as asked
        self.reports = reports  # in the first process only
        self.position_counts = None if rows.documents is None else rows.documents.position_counts
        device = arguments.device
        self.choose = by_parity(stage.parity, sparse)
        self.fp8: Any = None
        if stage.scorer is not None and stage.scorer.precision == "fp8":
            self.fp8 = optional_room("fp8", "scorer.precision").Fp8Scoring(
                stage.weighting, stage.training.precision, stage.seed, self.choose, device
            )
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.step_metrics = StepMetrics(
            device, train_flops(model.config, rows.tokens.shape[1]), peak_flops(name), execution.sequence_parallel
        )
        self.step_row: Row = {}
        self.remove_callback(PrinterCallback)
        self.add_callback(self)

    # --- One optimizer step ---------------------------------------------------------------------

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]:
        """The micro-batches of one optimizer step; an unfrozen scorer scores all of them together."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self.stage.scores_itself and batches:
            token_ids = torch.cat([batch["input_ids"].to(device) for batch in batches])
            with nullcontext() if self.fp8 is None else self.fp8.linears(self.model):
                scored = {"short_nll": self._score(token_ids)}
            if self.fp8 is not None and self.fp8.measuring:
                scored["exact_short_nll"] = self._score(token_ids)
            for name, nll in scored.items():
                for batch, rows in zip(batches, nll.split([len(b["input_ids"]) for b in batches]), strict=True):
                    batch[name] = rows
        return batches, items

    def _score(self, token_ids: Tensor) -> Tensor:
        """The model's own NLL on short windows (unfrozen), [B, M]; its first window is left to the long pass."""
        assert self.plan is not None
        per_batch = self.args.per_device_train_batch_size * self.plan.long_tokens // self.plan.short_tokens
        return score_windows(
            self.model,
            token_ids,
            self.plan,
            bos_token_id=self.bos_token_id,
            windows_per_batch=max(1, per_batch // self.execution.sequence_parallel),
            first_window=False,
            shard=self.shard,
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Weighted NLL of one micro-batch: input_ids [B, N], sequence_id [B], short_nll [B, M], position_ids [B, N] if any."""
        step, reason = None, None
        own_first_window = self.stage.scores_itself or self.stage.weighting.own_first_window
        try:
            step = weighted_step(
                model,
                inputs["input_ids"],
                self.stage.weighting,
                sequence_ids=inputs["sequence_id"].tolist(),
                seed=self.stage.seed,
                short_nll=inputs.get("short_nll"),
                own_first_window=self.plan if own_first_window else None,
                choose=self.choose,
                shard=self.shard,
                position_ids=inputs.get("position_ids"),
                position_counts=self.position_counts,
            )
        except FloatingPointError as error:
            reason = str(error)
        reason = same_on_all_ranks(reason)
        if step is None or reason is not None:
            raise self._stopped(str(reason))
        self.step_metrics.add(step.nll, step.weights)
        if "exact_short_nll" in inputs and self.plan is not None:
            long_nll = step.nll if self.shard is None else self.shard.gather(step.nll)
            nlls = (self.plan.with_own_context(inputs[name], long_nll) for name in ("short_nll", "exact_short_nll"))
            self.fp8.add(long_nll, *nlls, inputs["sequence_id"].tolist())
        return step.loss

    # --- Optimizer, schedule, order (Appendix B) ------------------------------------------------

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """All: weight decay also acts on norms, as in the paper's DeepSpeed setup."""
        return [name for name, _ in model.named_parameters()]

    def create_optimizer(self, model: Any = None) -> Any:
        """AdamW in one group: HF's second one, without decay, is empty, and checkpoints of one group have to load."""
        optimizer = super().create_optimizer(model)
        if not self.is_deepspeed_enabled:  # which makes its own, of a stand-in without groups
            optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Linear warm-up from 0 (the first step does nothing), then constant or a linear decay."""
        if self.lr_scheduler is None:
            training = self.stage.training
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda step: learning_rate_share(step, training)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Rows in the order in which the chunk stage shuffled them; processes that share sequences read the same."""
        processes = self.execution.sequence_parallel
        return shared_rows(len(self.train_dataset), self.args.per_device_train_batch_size, processes)

    # --- Numbers --------------------------------------------------------------------------------

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """This step's numbers, over all processes; stop where they are not finite."""
        self.step_row = self.step_metrics.finish()
        if not all(value is None or math.isfinite(value) for value in self.step_row.values()):
            raise self._stopped(f"the loss is not finite (NLL {self.step_row['nll']})")
        if self.fp8 is not None and self.fp8.measuring:
            self.step_row["fp8_overlap"] = self.fp8.finish()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """One step's numbers to the reports; HF's own summary at the end is dropped."""
        if "learning_rate" not in logs:
            return
        norm, step, training = float(logs["grad_norm"]), self.state.global_step, self.stage.training
        if not math.isfinite(norm):
            raise self._stopped(f"the gradient norm is not finite ({norm})", step)
        # DeepSpeed's schedule has moved on already when HF reads the rate: say the one of this step.
        rate = training.learning_rate * learning_rate_share(step - 1, training)
        if self.reports is not None:
            self.reports.add({"step": step, **self.step_row, "grad_norm": norm, "learning_rate": rate})

    def _stopped(self, reason: str, step: int | None = None) -> StageError:
        """`step`: None in one that has not ended."""
        step = self.state.global_step + 1 if step is None else step
        kept = "; the last checkpoint is kept" if last_complete(Path(str(self.args.output_dir)))[0] else ""
        return StageError(f"training stopped at step {step}: {reason}{kept}")

    # --- Begin, stop, checkpoints ---------------------------------------------------------------

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Engines have rounded rotary frequencies before: put them back and check."""
        restore_rope(self.model, self.model.config)
        assert_rope(self.model, self.model.config)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop here, with a checkpoint, if any process was asked to; the last step ends the run anyway."""
        asked = "asked to stop" if asked_to_stop(Path(str(args.output_dir)).parent) else None
        if state.global_step < state.max_steps and same_on_all_ranks(asked) is not None:
            self.stopped_after = state.global_step
            control.should_save = control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A checkpoint counts from the moment at which every process has written its part."""
        self.accelerator.wait_for_everyone()
        if state.is_world_process_zero:
            mark_complete(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}", self.execution)
        self.accelerator.wait_for_everyone()


def learning_rate_share(step: int, training: Training) -> float:
    """Share of the full learning rate at optimizer step `step` (from 0): warm-up, then constant or linear decay."""
    if step < training.warmup_steps:
        return step / training.warmup_steps
    remaining = max(training.steps - training.warmup_steps, 1)
    elapsed = (step - training.warmup_steps) / remaining
    return 1 - (1 - training.final_learning_rate_share) * min(elapsed, 1.0)
