"""How fast torch's causal attention is by kernel, width of a head and length: what bounds the MFU of long sequences.

    python benchmarks/attention.py [--lengths 32768,131072] [--out attention.json]

Queries of 32 heads, keys and values of 8, in bf16, as in Llama-3: heads of 64 numbers (1B) and 128 (8B). Forward counts
2 x length^2 x width FLOPs (the causal half), backward 2.5 times as many, which it executes; of MFU it counts as twice. The bound
is that of a step that keeps attention's outputs and does nothing else. Fastest of three. Needs a GPU.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import cyclopts
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tokenweight.training.flops import peak_flops

HEADS, KEY_HEADS, REPEATS = 32, 8, 3
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
EXECUTED, COUNTED = 2.5, 2.0  # of backward, by forward


def measure(tokens: int, width: int, backend: SDPBackend) -> dict[str, float]:
    """TFLOP/s of both directions, and the MFU that they alone would allow."""
    query, key, value = (
        torch.randn(1, heads, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    forward, both = [], []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        with sdpa_kernel(backend):
            output = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        torch.cuda.synchronize()
        forward.append(time.perf_counter() - began)
        output.backward(torch.ones_like(output))
        torch.cuda.synchronize()
        both.append(time.perf_counter() - began)
    flops, backward = 2.0 * tokens**2 * HEADS * width, min(both) - min(forward)
    peak = peak_flops(torch.cuda.get_device_name()) or float("nan")
    return {
        "forward_tflops": flops / min(forward) / 1e12,
        "backward_tflops": EXECUTED * flops / backward / 1e12,
        "mfu_bound": (1 + COUNTED) * flops / min(both) / peak,
    }


def main(lengths: str = "32768,131072", out: Path | None = None) -> None:
    """Measure all, print one table, write JSON."""
    if not torch.cuda.is_available():
        raise SystemExit("attention.py needs a GPU")
    rows: list[dict[str, Any]] = []
    print(f"{'width':>5s} {'tokens':>8s} {'kernel':6s} {'forward':>8s} {'backward':>8s} {'MFU at most':>12s}")
    for width, tokens, name in ((w, int(n), b) for w in (64, 128) for n in lengths.split(",") for b in BACKENDS):
        row = {"head_width": width, "tokens": tokens, "kernel": name, **measure(tokens, width, BACKENDS[name])}
        rows.append(row)
        print(
            f"{width:5d} {tokens:8d} {name:6s} {row['forward_tflops']:8.0f} {row['backward_tflops']:8.0f} {row['mfu_bound']:12.3f}"
        )
    if out:
        about = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    cyclopts.run(main)
