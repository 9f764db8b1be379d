"""How fast sequences are scored on short windows: tokens a second of a scoring pass, for the paper's models.

    python benchmarks/scoring.py [--models llama3-8b,llama3.2-1b,phi-2] [--layers 4,8] [--out FILE.json]

All windows of one sequence of 32k tokens, as a frozen scorer reads it; real widths at a few depths, extrapolated in a
straight line to the whole model. `straightforward` is a plain implementation of the same thing: window by window, all
logits in fp32. `fused` compiles the elementwise parts. fp8 rows need a GPU that multiplies float8 and are left out
elsewhere. Needs torch and transformers on a GPU; --tiny tries the logic on a CPU.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import torch
from cyclopts import Parameter

sys.path.insert(0, str(Path(__file__).parent))

from shapes import SHAPES, Shape, tiny
from training_cost import Bench, cell, extrapolate, measure

from tokenweight.errors import UserError
from tokenweight.fp8 import check_fp8, fp8_linears
from tokenweight.training.kernels import attention_kernels, fused_elementwise

Context = Callable[[Any], AbstractContextManager[Any]]
STRAIGHTFORWARD = "straightforward"
VARIANTS: dict[str, tuple[Context, ...]] = {  # what is changed of the model meanwhile
    STRAIGHTFORWARD: (),
    "bf16": (),
    "bf16, fused": (fused_elementwise,),
    "fp8": (fp8_linears,),
    "fp8, fused": (fused_elementwise, fp8_linears),
}


def main(
    models: Annotated[str, Parameter(help="By comma.")] = ",".join(SHAPES),
    layers: Annotated[str, Parameter(help="Depths to measure.")] = "4,8",
    repeats: int = 3,
    small: Annotated[bool, Parameter("--tiny", help="Small widths, to try the logic without a GPU.")] = False,
    out: Path | None = None,
) -> None:
    """Measure, print one table, write JSON."""
    device = "cuda" if torch.cuda.is_available() and not small else "cpu"
    chosen = list(VARIANTS)
    try:
        check_fp8(torch.device(device))
    except UserError as error:
        chosen = [name for name in chosen if "fp8" not in name]
        print(f"without fp8: {error}", file=sys.stderr)
    depths = [int(depth) for depth in layers.split(",")]
    measured = {}
    for model in models.split(","):
        shape = tiny(SHAPES[model]) if small else SHAPES[model]
        measured[model] = measure_model(shape, depths, chosen, device, repeats)
    rows = [row for model, results in measured.items() for row in table_rows(model, results, small=small)]
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    print_table(rows, name, max(depths))
    if out:
        content = {
            "device": name, "layers": depths, "repeats": repeats, "tiny": small, "rows": rows, "measured": measured,
            "fused": {variant: fused_elementwise in VARIANTS[variant] for variant in chosen},
            "windows": {model: vars(SHAPES[model]) for model in measured},
            "versions": {name: version(name) for name in ("torch", "transformers")} | {"python": platform.python_version()},
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n")


def measure_model(
    shape: Shape, depths: list[int], chosen: list[str], device: str, repeats: int
) -> dict[str, dict[int, dict[str, Any]]]:
    """By variant and depth: median seconds and peak memory of scoring one sequence."""
    results: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in chosen}
    for depth in depths:
        bench = Bench(shape, depth, device, "none")
        for name in chosen:
            score = Bench.plain_score if name == STRAIGHTFORWARD else Bench.score
            with ExitStack() as stack:
                stack.enter_context(attention_kernels() if device == "cuda" else nullcontext())
                for context in VARIANTS[name]:
                    stack.enter_context(context(bench.model))
                results[name][depth] = measure(bench, partial(score, first_window=True), repeats)
            print(f"{shape.name}, {depth} layers, {name}: {results[name][depth]}", file=sys.stderr, flush=True)
        del bench
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    return results


def table_rows(model: str, results: dict[str, dict[int, dict[str, Any]]], *, small: bool) -> list[dict[str, Any]]:
    """Seconds of the whole model, scored tokens a second, and how many times as fast as the straightforward way."""
    shape = tiny(SHAPES[model]) if small else SHAPES[model]
    seconds = {name: extrapolate(by_depth, shape.layers) for name, by_depth in results.items()}
    plain = seconds[STRAIGHTFORWARD]
    rows = []
    for name, value in seconds.items():
        deep = results[name][max(results[name])]
        row = {"model": model, "layers": shape.layers, "variant": name, "seconds": value}
        row["tokens_per_second"] = (shape.long_tokens - 1) / value if value else None
        row["times_straightforward"] = plain / value if value and plain else None
        row["peak_gib"] = deep.get("peak_gib")
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]], device: str, deepest: int) -> None:
    """One line for each model and variant."""
    print(f"{device}, torch {torch.__version__}; whole models by a straight line; peak memory at {deepest} layers")
    print(f"{'model':12s} {'variant':30s} {'seconds':>9s} {'tokens/s':>10s} {'x straightforward':>18s} {'GiB':>6s}")
    for row in rows:
        numbers = (
            cell(row["seconds"], "9.3f"),
            cell(row["tokens_per_second"], "10.0f"),
            cell(row["times_straightforward"], "18.2f"),
            cell(row["peak_gib"], "6.1f"),
        )
        print(f"{row['model']:12s} {row['variant']:30s} {' '.join(numbers)}")


if __name__ == "__main__":
    cyclopts.run(main)
