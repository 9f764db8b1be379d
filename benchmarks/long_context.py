"""How the cost of a training step grows with the context, from 8k tokens up, and that the longest fits.

    torchrun --nproc_per_node GPUS benchmarks/long_context.py [--model llama3-8b] [--layers 32] [--out FILE.json]

All GPUs share each sequence (sequence parallelism) and all parameters (DeepSpeed ZeRO-3), by the project's own trainer:
one sequence an optimizer step. For every length, shortest first, each weighting has a step to warm up and timed ones.
Weights are random; nothing is saved. Rows are printed and written as they come, so a length that does not fit costs only
itself and the longer ones. Short contexts are a quarter of the length, at most the paper's 8192 tokens, moved by three
quarters of themselves. --tiny tries the logic on CPUs. Needs deepspeed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

import variants
from shapes import SHAPES, tiny
from transformers import TrainerCallback

from tokenweight.assets import smoke_base_dir
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Checkpointing, Execution, Scorer, Training
from tokenweight.training.bases import write_random_base
from tokenweight.training.flops import train_flops
from tokenweight.training.kernels import attention_kernels, checkpoint_activations, fused_elementwise
from tokenweight.training.metrics import StepReports
from tokenweight.training.models import load_model
from tokenweight.training.run import training_arguments
from tokenweight.training.sequence_parallel import check_sequence_parallel
from tokenweight.training.sequences import TrainingRows
from tokenweight.training.stages import Train
from tokenweight.training.trainer import TokenWeightingTrainer
from tokenweight.weighting.windows import WindowPlan, plan_windows

WEIGHTINGS = tuple(name for name in variants.WEIGHTINGS if name != variants.FP8)
LENGTHS = (8192, 16_384, 32_768, 65_536, 131_072)
TINY_LENGTHS = (64, 128, 256)
SHORT_TOKENS = 8192  # the paper's, Section 4


def windows(long_tokens: int) -> WindowPlan:
    """The windows of one length."""
    short_tokens = min(SHORT_TOKENS, long_tokens // 4)
    return plan_windows(long_tokens, short_tokens, short_tokens * 3 // 4)


class RowsOfManyLengths(TrainingRows):
    """One sequence a step: all steps of a length, then those of the next."""

    def __init__(self, lengths: list[int], steps_per_length: int, vocabulary: int, ready: set[int]) -> None:
        self.lengths, self.steps_per_length, self.vocabulary, self.ready = lengths, steps_per_length, vocabulary, ready
        self.tokens, self.documents = np.zeros((0, lengths[0]), np.uint32), None

    def __len__(self) -> int:
        return len(self.lengths) * self.steps_per_length

    def __getitem__(self, index: int) -> dict[str, Any]:
        draw = np.random.default_rng(index)
        tokens = self.lengths[index // self.steps_per_length]
        item: dict[str, Any] = {
            "input_ids": torch.from_numpy(draw.integers(0, self.vocabulary, tokens)),
            "sequence_id": index,
        }
        if index % self.steps_per_length in self.ready:
            item["short_nll"] = torch.from_numpy(5 * draw.random(tokens - 1, np.float32))
        return item


class Stages(TrainerCallback):
    """Gives each length and weighting its steps; prints and writes a row when they are done."""

    def __init__(self, trainer: TokenWeightingTrainer, options: argparse.Namespace, about: dict[str, Any]) -> None:
        self.trainer, self.options, self.about = trainer, options, about
        self.stages = [(length, name) for length in options.lengths for name in options.weightings]
        self.rows: list[dict[str, Any]] = []
        self.seconds: list[float] = []
        self.mfus: list[float | None] = []
        self.peaks: list[float] = []
        self._set(0)

    def _set(self, step: int) -> None:
        self.tokens, self.name = self.stages[min(step // self.options.steps, len(self.stages) - 1)]
        trainer = self.trainer
        variants.train_with(trainer, self.name)
        if trainer.plan is None or trainer.plan.long_tokens != self.tokens:
            torch._dynamo.reset()  # or the shapes of all lengths together pass its limit of recompilations
        trainer.plan = windows(self.tokens)
        trainer.step_metrics.sequence_flops = train_flops(trainer.model.config, self.tokens)
        if trainer.shard is not None:
            trainer.shard.tokens = self.tokens

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        row = self.trainer.step_row
        self.seconds.append(row["seconds"] or 0.0)
        self.mfus.append(row["mfu"])
        self.peaks.append(row["peak_memory_bytes"] or 0.0)  # of the fullest process
        if state.global_step % self.options.steps == 0:
            self._finish_row()
        self._set(state.global_step)

    def _finish_row(self) -> None:
        seconds = statistics.median(self.seconds[1:])
        mfus = [mfu for mfu in self.mfus[1:] if mfu is not None]
        uniform = next((r["seconds"] for r in self.rows if r["tokens"] == self.tokens), seconds)
        row = {"tokens": self.tokens, "weighting": self.name, "seconds": seconds, "ratio_to_uniform": seconds / uniform}
        row |= {"tokens_per_second": self.tokens / seconds, "peak_gib": max(self.peaks) / 2**30}
        row["mfu"] = statistics.median(mfus) if mfus and self.name == "uniform" else None
        self.seconds, self.mfus, self.peaks = [], [], []
        self.rows.append(row)
        if not self.trainer.is_world_process_zero():
            return
        if len(self.rows) == 1:
            print(" ".join(f"{name}: {value}" for name, value in self.about.items() if name != "versions"))
            print(
                f"{'tokens':>8s}  {'weighting':22s} {'s a step':>10s} {'x uniform':>10s} {'tokens/s':>10s} {'MFU':>6s} {'GiB':>6s}"
            )
        mfu = "-" if row["mfu"] is None else f"{row['mfu']:.3f}"
        print(
            f"{self.tokens:8d}  {self.name:22s} {seconds:10.3f} {row['ratio_to_uniform']:10.3f} "
            f"{row['tokens_per_second']:10.0f} {mfu:>6s} {row['peak_gib']:6.1f}",
            flush=True,
        )
        if self.options.out:
            self.options.out.parent.mkdir(parents=True, exist_ok=True)
            self.options.out.write_text(json.dumps({**self.about, "rows": self.rows}, indent=1) + "\n")


def main() -> None:
    """Train through all lengths and weightings; the first process prints."""
    options = _options()
    shape = tiny(SHAPES[options.model]) if options.tiny else SHAPES[options.model]
    shape = replace(shape, long_tokens=max(options.lengths))
    layers, world = options.layers or shape.layers, int(os.environ.get("WORLD_SIZE", "1"))
    steps_per_length = options.steps * len(options.weightings)
    training = Training(
        steps=steps_per_length * len(options.lengths), sequences_per_step=1, learning_rate=2e-5, warmup_steps=1,
        precision="fp32" if options.tiny else "bf16",
    )  # fmt: skip
    execution = Execution(
        launcher="torchrun", processes=world, sequence_parallel=world, device="cpu" if options.tiny else "cuda",
        deepspeed_stage=3, checkpointing=options.checkpointing, offload_activations=options.offload,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        write_random_base(shape.make_config(layers).to_dict(), 0, smoke_base_dir(), base)
        scorer = Scorer(kind="unfrozen", short_tokens=shape.short_tokens, stride_tokens=shape.stride_tokens)
        stage = Train(training=training, scorer=scorer)
        arguments = training_arguments(stage, Path(folder) / "work", execution)
        arguments.save_strategy = "no"
        model = load_model(base, torch.float32 if options.tiny else torch.bfloat16, check_rope=False)
        for length in options.lengths:
            check_sequence_parallel(execution, model.config, length)
        checkpoint_activations(model, execution.checkpointing, offload=options.offload and not options.tiny)
        ready = {
            step for step in range(steps_per_length) if options.weightings[step // options.steps] == variants.READY
        }
        rows = RowsOfManyLengths(options.lengths, steps_per_length, shape.config["vocab_size"], ready)
        trainer = TokenWeightingTrainer(
            model, arguments, rows, stage, execution, bos_token_id=None,
            reports=StepReports(Path(folder), (), stage.training.steps, no_progress) if arguments.process_index == 0 else None,
        )  # fmt: skip
        about = {
            "model": options.model + (" (tiny)" if options.tiny else ""), "layers": layers, "processes": world,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor(),
            "checkpointing": options.checkpointing, "offload_activations": options.offload, "fused": options.fused,
            "versions": {name: version(name) for name in ("torch", "transformers", "deepspeed", "accelerate")},
        }  # fmt: skip
        trainer.add_callback(Stages(trainer, options, about))
        with attention_kernels(), fused_elementwise(model) if options.fused else nullcontext():
            trainer.train()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(SHAPES), default="llama3-8b")
    parser.add_argument("--layers", type=int, help="default: all")
    parser.add_argument("--lengths", type=int, nargs="+", help="in tokens; default: 8k, 16k, 32k, 64k, 128k")
    parser.add_argument("--weightings", help=f"by semicolon, uniform first, of: {'; '.join(WEIGHTINGS)}; default: all")
    parser.add_argument("--steps", type=int, default=3, help="of each length and weighting, the first to warm up")
    parser.add_argument("--checkpointing", choices=get_args(Checkpointing), default="full")
    parser.add_argument("--offload", action="store_true", help="keep layers' inputs in the host's memory")
    parser.add_argument("--fused", action="store_true", help="compile the elementwise parts")
    parser.add_argument("--tiny", action="store_true", help="small widths and lengths on CPUs, to try the logic")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.lengths = sorted(options.lengths or (TINY_LENGTHS if options.tiny else LENGTHS))
    options.weightings = options.weightings.split(";") if options.weightings else list(WEIGHTINGS)
    if options.weightings[0] != "uniform" or set(options.weightings) - set(WEIGHTINGS):
        parser.error(f"--weightings: uniform first, then any of {'; '.join(WEIGHTINGS)}")
    if options.steps < 2:
        parser.error("--steps: at least 2, the first warms up")
    return options


if __name__ == "__main__":
    main()
