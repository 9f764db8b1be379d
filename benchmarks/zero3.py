"""A training step of the paper's setup on all GPUs of a machine: DeepSpeed ZeRO-3, the project's own trainer.

    torchrun --nproc_per_node GPUS benchmarks/zero3.py [--model llama3-8b] [--layers 32] [--out FILE.json]

One run trains a few optimizer steps with each weighting in turn, uniform first and last, and prints step times with
their ratios, MFU (recomputation not counted) and peak memory. Weights are random; nothing is saved. Needs deepspeed.
With --scoring every GPU also scores a sequence by the whole model beforehand, as frozen scoring does, and with
--weak-scorer by a smaller one; their seconds are those of as many sequences as a step has on each GPU.
fp8 scoring runs by default where the GPUs multiply float8; what it chooses says nothing here, the weights being random.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from shapes import SHAPES, Shape, step_flops, tiny
from training_cost import VARIANTS, Bench, measure
from transformers import TrainerCallback
from variants import FP8, WEIGHTINGS, train_with

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.fp8 import check_fp8
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Checkpointing, Execution, Scorer, Training
from tokenweight.training.bases import write_random_base
from tokenweight.training.flops import peak_flops
from tokenweight.training.kernels import attention_kernels, checkpoint_activations, fused_elementwise
from tokenweight.training.metrics import StepReports, read_metrics
from tokenweight.training.models import load_model
from tokenweight.training.run import training_arguments
from tokenweight.training.sequences import TrainingRows
from tokenweight.training.stages import Train
from tokenweight.training.trainer import TokenWeightingTrainer
from tokenweight.weighting import plan_windows

AGAIN = " again"
ORDER = (*WEIGHTINGS, "uniform" + AGAIN)


class Switch(TrainerCallback):
    """Gives each weighting its steps, and notes the peak memory of each."""

    def __init__(self, trainer: TokenWeightingTrainer, order: list[str], steps_each: int) -> None:
        self.trainer, self.order, self.steps_each = trainer, order, steps_each
        self.peak: dict[str, float] = {}
        self._set(0)

    def _set(self, step: int) -> None:
        self.name = self.order[min(step // self.steps_each, len(self.order) - 1)]
        train_with(self.trainer, self.name.removesuffix(AGAIN))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.cuda.is_available():
            before_optimizer = self.trainer.step_row["peak_memory_bytes"] or 0.0  # the trainer's own count begins anew
            peak = max(before_optimizer, torch.cuda.max_memory_allocated())
            self.peak[self.name] = max(self.peak.get(self.name, 0.0), peak / 2**30)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        self._set(state.global_step)


def main() -> None:
    """Train, then print on the first process."""
    options = _options()
    shape = tiny(SHAPES[options.model]) if options.tiny else SHAPES[options.model]
    layers = options.layers or shape.layers
    world = int(os.environ.get("WORLD_SIZE", "1"))
    order = weightings(options)
    steps = options.steps * len(order)
    training = Training(
        steps=steps, sequences_per_step=world * options.accumulation, learning_rate=2e-5, warmup_steps=1,
        precision="fp32" if options.tiny else "bf16",
    )  # fmt: skip
    execution = Execution(
        launcher="torchrun", processes=world, device="cpu" if options.tiny else "cuda", deepspeed_stage=3,
        checkpointing=options.checkpointing,
    )  # fmt: skip
    scoring = measure_scoring(shape, layers, options)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        write_random_base(shape.make_config(layers).to_dict(), 0, smoke_base_dir(), base)
        scorer = Scorer(kind="unfrozen", short_tokens=shape.short_tokens, stride_tokens=shape.stride_tokens)
        stage = Train(training=training, scorer=scorer)
        arguments = training_arguments(stage, Path(folder) / "work", execution)
        arguments.save_strategy = "no"
        model = load_model(base, torch.float32 if options.tiny else torch.bfloat16, check_rope=False)
        checkpoint_activations(model, execution.checkpointing)
        draw = np.random.default_rng(0)
        tokens = draw.integers(
            0, shape.config["vocab_size"], (training.sequences_per_step, shape.long_tokens), np.uint32
        )
        ready = 5 * draw.random((len(tokens), shape.long_tokens - 1), np.float32)
        scores = [(ready, row) for row in range(len(tokens))]
        rows = TrainingRows(tokens, stage.sequences, shape.config["vocab_size"], scores)
        trainer = TokenWeightingTrainer(
            model, arguments, rows, stage, execution, bos_token_id=None,
            reports=StepReports(Path(folder), (), stage.training.steps, no_progress) if arguments.process_index == 0 else None,
        )  # fmt: skip
        trainer.plan = plan_windows(shape.long_tokens, shape.short_tokens, shape.stride_tokens)
        switch = Switch(trainer, order, options.steps)
        trainer.add_callback(switch)
        with attention_kernels(), fused_elementwise(model) if options.fused else nullcontext():
            trainer.train()
        if trainer.is_world_process_zero():
            metrics = read_metrics(Path(folder) / "metrics.jsonl")
            report(shape, layers, world, options, order, metrics, switch.peak, scoring)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def weightings(options: argparse.Namespace) -> list[str]:
    """The weightings asked for; without a word all that the device can."""
    asked = options.weightings.split(";") if options.weightings else list(ORDER)
    if FP8 in asked:
        try:
            check_fp8(torch.device("cpu" if options.tiny else "cuda"))
        except UserError as error:
            if options.weightings:
                raise SystemExit(f"{FP8}: {error}") from error
            asked.remove(FP8)
    return asked


def measure_scoring(shape: Shape, layers: int, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Scoring of one sequence on every GPU at once, the model whole on each (frozen scoring is not sharded)."""
    models = {"scoring alone": (shape, layers)} if options.scoring else {}
    if options.weak_scorer:
        weak = SHAPES[options.weak_scorer]
        models[f"scoring alone, {weak.name}"] = (tiny(weak) if options.tiny else weak, weak.layers)
    device = "cpu" if options.tiny else "cuda"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    found = {}
    for name, (scorer, depth) in models.items():
        bench = Bench(scorer, depth, device, options.checkpointing)
        on_gpu = attention_kernels() if device == "cuda" else nullcontext()
        with on_gpu, fused_elementwise(bench.model) if options.fused else nullcontext():
            found[name] = measure(bench, VARIANTS["scoring alone"], options.steps - 1)
        del bench
        torch._dynamo.reset()  # or the shapes of all models together pass its limit of recompilations
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    return found


def report(
    shape: Shape,
    layers: int,
    world: int,
    options: argparse.Namespace,
    order: list[str],
    rows: list[dict[str, Any]],
    peak: dict[str, float],
    scoring: dict[str, dict[str, Any]],
) -> None:
    """Median seconds of a weighting's steps but the first, which warms up; uniform: of both its turns."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    timed: dict[str, list[float]] = {}
    for i, name in enumerate(order):
        steps = [row["seconds"] for row in rows[i * options.steps + 1 : (i + 1) * options.steps]]
        timed.setdefault(name.removesuffix(AGAIN), []).extend(steps)
    seconds = {name: statistics.median(steps) for name, steps in timed.items()}
    for name, measured in scoring.items():
        if "seconds" in measured:
            seconds[name] = measured["seconds"] * options.accumulation
            peak = {**peak, name: measured["peak_gib"]}
    uniform = seconds["uniform"]
    device_flops = peak_flops(device)
    flops = step_flops(shape, layers, shape.long_tokens) * options.accumulation
    print(f"{options.model}, {layers} layers, {shape.long_tokens} tokens, {world} x {device}, ZeRO-3, "
          f"accumulation {options.accumulation}, {options.checkpointing}{', fused' if options.fused else ''}")  # fmt: skip
    speeds = {name: world * options.accumulation * shape.long_tokens / value for name, value in seconds.items()}
    print(f"{'weighting':28s} {'s a step':>10s} {'x uniform':>10s} {'tokens/s':>10s} {'MFU':>6s} {'GiB':>6s}")
    for name, value in seconds.items():
        mfu = f"{flops / value / device_flops:6.3f}" if device_flops and name == "uniform" else f"{'-':>6s}"
        print(f"{name:28s} {value:10.3f} {value / uniform:10.3f} {speeds[name]:10.0f} {mfu} {peak.get(name, 0):6.1f}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "model": options.model + (" (tiny)" if options.tiny else ""),
            "setup": f"{world} x {device}, ZeRO-3, {layers} layers", "layers": layers,
            "gpus": world, "device": device, "long_tokens": shape.long_tokens, "accumulation": options.accumulation,
            "checkpointing": options.checkpointing, "fused": options.fused, "timed_steps": options.steps - 1,
            "seconds": seconds, "tokens_per_second": speeds, "peak_gib": peak,
            "ratios": {name: value / uniform for name, value in seconds.items()},
            "mfu_uniform": flops / uniform / device_flops if device_flops else None,
            "all_seconds": [row["seconds"] for row in rows], "scoring_of_one_sequence": scoring,
            "versions": {name: version(name) for name in ("torch", "transformers", "deepspeed", "accelerate")}
            | {"python": platform.python_version()},
        }  # fmt: skip
        options.out.write_text(json.dumps(content, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(SHAPES), default="llama3-8b")
    parser.add_argument("--layers", type=int, help="default: all")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of each weighting, the first to warm up")
    parser.add_argument("--accumulation", type=int, default=2, help="micro-batches a step (the paper: 16)")
    parser.add_argument("--checkpointing", choices=get_args(Checkpointing), default="keep_attention")
    parser.add_argument("--fused", action="store_true", help="compile the elementwise parts")
    parser.add_argument("--weightings", help=f"by semicolon, of: {'; '.join(ORDER)}")
    parser.add_argument("--scoring", action="store_true", help="time frozen scoring by the whole model too")
    parser.add_argument("--weak-scorer", choices=list(SHAPES), help="time frozen scoring by this model too")
    parser.add_argument("--tiny", action="store_true", help="small widths on CPUs, to try the logic")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.steps < 2:
        parser.error("--steps: at least 2, the first warms up")
    if options.weightings and "uniform" not in options.weightings.split(";"):
        parser.error("--weightings: uniform has to be among them, all ratios are to it")
    return options


if __name__ == "__main__":
    main()
