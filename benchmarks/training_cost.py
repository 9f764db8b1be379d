"""What a training step costs with each weighting, on one GPU: the paper's Table 6 as ratios within one run.

    python benchmarks/training_cost.py [--model llama3-8b|phi-2] [--layers 4,8] [--out FILE.json]

Forward and backward of one sequence (the optimizer is the same for all), real widths at a few depths, extrapolated in
a straight line to the whole model. `plain` variants are a straightforward implementation of the same thing: logits
materialised in fp32, windows one by one. `fp8` variants need a GPU that multiplies float8, and are left out elsewhere.
Needs torch and transformers on a GPU; --tiny tries the logic on a CPU.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import torch
import transformers
from cyclopts import Parameter
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))

from shapes import SHAPES, Shape, step_flops
from shapes import tiny as tiny_shape

from tokenweight.errors import UserError
from tokenweight.fp8 import check_fp8, fp8_linears
from tokenweight.recipes.schema import Checkpointing, Weighting
from tokenweight.training.flops import peak_flops
from tokenweight.training.kernels import checkpoint_activations, fused_elementwise
from tokenweight.weighting import install_head, plan_windows, score_windows, token_weights
from tokenweight.weighting.step import weighted_step

UNIFORM = Weighting()
DENSE = Weighting.model_validate({"postprocessing": "dense", "lambda": 0.75})
SPARSE = Weighting(postprocessing="sparse", kappa=0.2)
FROZEN_SPARSE = Weighting(postprocessing="sparse", kappa=0.4)
BACKENDS = {"cudnn": [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], "flash": [SDPBackend.FLASH_ATTENTION]}


class Bench:
    """One model at one depth, one sequence, and the variants of a step on it."""

    def __init__(self, shape: Shape, layers: int, device: str, checkpointing: Checkpointing) -> None:
        self.shape, self.layers, self.device = shape, layers, device
        self.model = shape.build(layers, device)
        checkpoint_activations(self.model, checkpointing)
        install_head(self.model)
        self.model.train()
        self.plan = plan_windows(shape.long_tokens, shape.short_tokens, shape.stride_tokens)
        generator = torch.Generator().manual_seed(0)
        vocabulary = shape.config["vocab_size"]
        self.ids = torch.randint(0, vocabulary, (1, shape.long_tokens), generator=generator).to(device)
        self.ready = 5 * torch.rand((1, self.plan.predictions), generator=generator).to(device)
        self.windows_per_batch = shape.long_tokens // shape.short_tokens

    def step(self, weighting: Weighting, short_nll: Tensor | None, *, unfrozen: bool) -> None:
        own = self.plan if unfrozen else None
        weighted_step(
            self.model, self.ids, weighting, sequence_ids=[0], seed=0, short_nll=short_nll, own_first_window=own
        ).loss.backward()

    def score(self, *, first_window: bool) -> Tensor:
        return score_windows(
            self.model, self.ids, self.plan, bos_token_id=None, windows_per_batch=self.windows_per_batch,
            first_window=first_window,
        )  # fmt: skip

    def uniform(self) -> None:
        self.step(UNIFORM, None, unfrozen=False)

    def frozen(self) -> None:
        self.step(FROZEN_SPARSE, self.ready, unfrozen=False)

    def unfrozen_dense(self) -> None:
        self.step(DENSE, self.score(first_window=False), unfrozen=True)

    def unfrozen_sparse(self) -> None:
        self.step(SPARSE, self.score(first_window=False), unfrozen=True)

    def score_in_fp8(self, *, first_window: bool) -> Tensor:
        with fp8_linears(self.model):
            return self.score(first_window=first_window)

    def unfrozen_dense_fp8(self) -> None:
        self.step(DENSE, self.score_in_fp8(first_window=False), unfrozen=True)

    def unfrozen_sparse_fp8(self) -> None:
        self.step(SPARSE, self.score_in_fp8(first_window=False), unfrozen=True)

    # --- The straightforward way: all logits, one window after the other ------------------------

    def _plain_nll(self, ids: Tensor) -> Tensor:
        logits = self.model(input_ids=ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[0, :-1].float(), ids[0, 1:], reduction="none")[None]

    def plain_uniform(self) -> None:
        self._plain_nll(self.ids).mean().backward()

    @torch.no_grad()
    def plain_score(self, *, first_window: bool) -> Tensor:
        short = torch.zeros_like(self.ready)
        windows = list(zip(self.plan.starts, self.plan.scored_ranges, strict=True))
        for start, (first, stop) in windows[0 if first_window else 1 :]:
            nll = self._plain_nll(self.ids[:, start : start + self.plan.short_tokens])
            short[:, first:stop] = nll[:, first - start : stop - start]
        return short

    def plain_unfrozen(self) -> None:
        short = self.plain_score(first_window=False)
        long_nll = self._plain_nll(self.ids)
        short = self.plan.with_own_context(short, long_nll.detach())
        weights = token_weights(long_nll, short, DENSE, sequence_ids=[0], seed=0)
        (weights * long_nll).mean().backward()


VARIANTS: dict[str, Callable[[Bench], object]] = {
    "uniform": Bench.uniform,
    "frozen, scores ready": Bench.frozen,
    "unfrozen dense": Bench.unfrozen_dense,
    "unfrozen sparse 0.2": Bench.unfrozen_sparse,
    "scoring alone": lambda bench: bench.score(first_window=True),
    "unfrozen dense, fp8 scoring": Bench.unfrozen_dense_fp8,
    "unfrozen sparse 0.2, fp8 scoring": Bench.unfrozen_sparse_fp8,
    "scoring alone, fp8": lambda bench: bench.score_in_fp8(first_window=True),
    "plain uniform": Bench.plain_uniform,
    "plain unfrozen dense": Bench.plain_unfrozen,
}


def measure(bench: Bench, variant: Callable[[Bench], object], repeats: int) -> dict[str, Any]:
    """Median seconds and peak memory of a variant; an out-of-memory error is said, not hidden."""
    cuda = bench.device == "cuda"
    seconds = []
    try:
        for _ in range(repeats + 1):
            bench.model.zero_grad(set_to_none=True)
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            variant(bench)
            if cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    except torch.OutOfMemoryError:
        gc.collect()
        torch.cuda.empty_cache()
        return {"out_of_memory": True}
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    return {"seconds": statistics.median(seconds[1:]), "all_seconds": seconds, "peak_gib": peak / 2**30}


def extrapolate(by_depth: dict[int, dict[str, Any]], layers: int) -> float | None:
    """Seconds at the whole depth: measured there, or on the straight line through two other depths."""
    points = sorted((depth, row["seconds"]) for depth, row in by_depth.items() if "seconds" in row)
    if len(points) == 1 and points[0][0] == layers:
        return float(points[0][1])
    if len(points) < 2:
        return None
    (x0, y0), (x1, y1) = points[0], points[-1]
    return float(y0 + (y1 - y0) / (x1 - x0) * (layers - x0))


def main(
    model: Annotated[str, Parameter(help=", ".join(SHAPES))] = "llama3-8b",
    layers: Annotated[str, Parameter(help="Depths to measure.")] = "4,8",
    variants: Annotated[str, Parameter(help="Which variants, by semicolon; all if empty.")] = "",
    attention: Annotated[str, Parameter(help="cudnn or flash")] = "cudnn",
    checkpointing: Annotated[Checkpointing, Parameter(help="What is kept of activations.")] = "keep_attention",
    fused: Annotated[bool, Parameter(help="Compile the elementwise parts.")] = False,
    repeats: int = 3,
    weak_scorer: Annotated[str, Parameter(help="A smaller model whose scoring is timed too, whole.")] = "",
    tiny: Annotated[bool, Parameter(help="Small widths, to try the logic without a GPU.")] = False,
    out: Path | None = None,
) -> None:
    """Measure, print one table, write JSON."""
    shape = SHAPES[model]
    device = "cuda" if torch.cuda.is_available() and not tiny else "cpu"
    if tiny:
        shape = tiny_shape(shape)
    chosen = [name.strip() for name in variants.split(";") if name.strip()] or list(VARIANTS)
    try:
        check_fp8(torch.device(device))
    except UserError as error:
        chosen = [name for name in chosen if "fp8" not in name]
        print(f"without fp8: {error}", file=sys.stderr)
    results: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in chosen}
    for depth in map(int, layers.split(",")):
        bench = Bench(shape, depth, device, checkpointing)
        for name in chosen:
            kernels = sdpa_kernel(BACKENDS[attention], set_priority=True) if device == "cuda" else nullcontext()
            with kernels, fused_elementwise(bench.model) if fused else nullcontext():
                results[name][depth] = measure(bench, VARIANTS[name], repeats)
            print(f"{depth} layers, {name}: {results[name][depth]}", file=sys.stderr, flush=True)
        del bench
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    if weak_scorer:
        weak = SHAPES[weak_scorer]
        bench = Bench(tiny_shape(weak) if tiny else weak, weak.layers, device, checkpointing)
        kernels = sdpa_kernel(BACKENDS[attention], set_priority=True) if device == "cuda" else nullcontext()
        with kernels, fused_elementwise(bench.model) if fused else nullcontext():
            whole = measure(bench, VARIANTS["scoring alone"], repeats)
        results[f"scoring alone, {weak_scorer}"] = {shape.layers: whole}
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor()
    model += " (tiny)" if tiny else ""
    settings = {"attention": attention, "checkpointing": checkpointing, "fused": fused, "timed_steps": repeats}
    report(shape, model, name, results, settings, out)


def report(
    shape: Shape,
    model: str,
    device: str,
    results: dict[str, dict[int, dict[str, Any]]],
    settings: dict[str, Any],
    out: Path | None,
) -> None:
    """Print the table, ratios to uniform of the same run."""
    seconds = {name: extrapolate(by_depth, shape.layers) for name, by_depth in results.items()}
    depths = sorted(next(iter(results.values())))
    uniform, device_flops = seconds.get("uniform"), peak_flops(device)
    ratios = {name: value / uniform for name, value in seconds.items() if value and uniform}
    mfu = (
        step_flops(shape, shape.layers, shape.long_tokens) / uniform / device_flops
        if uniform and device_flops
        else None
    )
    peaks = {name: by_depth.get(depths[-1], {}).get("peak_gib") for name, by_depth in results.items()}
    print(f"{model}, {shape.long_tokens} tokens, {device}, torch {torch.__version__}, {settings}")
    print(f"{'variant':32s} {f's at {shape.layers} layers':>16s} {'x uniform':>10s} {f'GiB at {depths[-1]}':>10s}")
    for name, value in seconds.items():
        cells = (cell(value, "16.3f"), cell(ratios.get(name), "10.3f"), cell(peaks[name], "10.1f"))
        print(f"{name:32s} {' '.join(cells)}")
    print(f"MFU of uniform: {cell(mfu, '.3f')}")
    if out:
        versions = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }
        content = {
            "model": model, "setup": f"1 x {device}, from {' and '.join(map(str, depths))} layers", "device": device,
            "long_tokens": shape.long_tokens, **settings, "versions": versions, "seconds": seconds, "ratios": ratios,
            "mfu_uniform": mfu, "peak_gib": peaks, "measured": results,
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n")


def cell(value: float | None, form: str) -> str:
    """A number in a column, a dash where there is none."""
    width = int(form.split(".")[0] or 1)
    return f"{'-':>{width}s}" if value is None else f"{value:{form}}"


if __name__ == "__main__":
    cyclopts.run(main)
