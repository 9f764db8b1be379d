"""Where the GPU's time goes in a training step or a scoring pass, by kind of kernel.

    python benchmarks/profile_step.py [--model llama3-8b] [--layers 4] [--variants "uniform;unfrozen dense"] [--fused]

The variants are those of training_cost.py, at a few layers and real widths; shares are of the kernels' time, which may
run side by side. Needs torch and transformers on a GPU; --tiny tries the logic on a CPU, by operators.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import torch
from cyclopts import Parameter
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parent))

from shapes import SHAPES, tiny
from training_cost import VARIANTS, Bench

from tokenweight.recipes.schema import Checkpointing
from tokenweight.training.kernels import attention_kernels, fused_elementwise

KINDS = {  # of a kernel, by what its name contains; the first that fits
    "attention": ("sdpa", "flash", "fmha", "attention"),
    "compiled elementwise": ("triton",),
    "products": ("gemm", "nvjet", "cutlass", "xmma", "mm", "cublas", "linear"),
    "reductions": ("reduce", "norm", "softmax", "logsumexp"),
    "copies and casts": ("copy", "memcpy", "memset", "fill", "cat"),
}


def kind_of(kernel: str) -> str:
    """Which kind a kernel is."""
    lowered = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lowered for part in parts)), "other elementwise")


def main(
    model: Annotated[str, Parameter(help=", ".join(SHAPES))] = "llama3-8b",
    layers: int = 4,
    variants: Annotated[str, Parameter(help="By semicolon, of training_cost.py.")] = "uniform;unfrozen dense",
    checkpointing: Annotated[Checkpointing, Parameter(help="What is kept of activations.")] = "keep_projections",
    fused: Annotated[bool, Parameter(help="Compile the elementwise parts.")] = False,
    kernels: Annotated[int, Parameter(help="Print so many of the longest kernels too.")] = 0,
    small: Annotated[bool, Parameter("--tiny", help="Small widths, to try the logic without a GPU.")] = False,
    out: Path | None = None,
) -> None:
    """Profile, print one table, write JSON."""
    cuda = torch.cuda.is_available() and not small
    bench = Bench(tiny(SHAPES[model]) if small else SHAPES[model], layers, "cuda" if cuda else "cpu", checkpointing)
    results: dict[str, dict[str, float]] = {}
    for name in (part.strip() for part in variants.split(";")):
        with attention_kernels(), fused_elementwise(bench.model) if fused else nullcontext():
            results[name] = measure(bench, name, cuda, kernels)
    device = torch.cuda.get_device_name() if cuda else "CPU"
    print(f"{model}, {layers} layers, {device}, torch {torch.__version__}, {checkpointing}{', fused' if fused else ''}")
    print(f"{'ms':24s} " + " ".join(f"{name:>28s}" for name in results))
    for kind in (*KINDS, "other elementwise"):
        cells = (
            f"{row.get(kind, 0.0):20.1f} {row.get(kind, 0.0) / sum(row.values()):7.1%}" for row in results.values()
        )
        print(f"{kind:24s} " + " ".join(cells))
    print(f"{'all kernels':24s} " + " ".join(f"{sum(row.values()):20.1f} {'':7s}" for row in results.values()))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        content = {"model": model, "layers": layers, "device": device, "torch": torch.__version__, "fused": fused}
        out.write_text(
            json.dumps({**content, "checkpointing": checkpointing, "milliseconds": results}, indent=1) + "\n"
        )


def measure(bench: Bench, name: str, cuda: bool, kernels: int) -> dict[str, float]:
    """Milliseconds of one step by kind of kernel, after one step to warm up."""
    for _ in range(2):
        VARIANTS[name](bench)
    bench.model.zero_grad(set_to_none=True)
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        VARIANTS[name](bench)
        if cuda:
            torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    events: list[Any] = list(profiled.key_averages())
    spent = {e.key: (e.self_device_time_total if cuda else e.self_cpu_time_total) / 1000 for e in events}
    for kernel, milliseconds in spent.items():
        times[kind_of(kernel)] += milliseconds
    for kernel in sorted(spent, key=lambda key: -spent[key])[:kernels]:
        print(f"{name}: {spent[kernel]:9.2f} ms  {kind_of(kernel):20s} {kernel[:100]}")
    return dict(times)


if __name__ == "__main__":
    cyclopts.run(main)
