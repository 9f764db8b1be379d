"""Heads that give each token's NLL without all logits at once, on the same tensors: error, gradients, time, memory.

    python benchmarks/heads.py [--rows 32768] [--out heads.json]

Llama-3's head (4096 x 128256, bf16), logits as peaked as a trained model's, a weight of its own for each row. Errors are
against fp64: of the NLL over all rows, of the gradients over 4,096 rows, relative in rms. Time is forward, and forward and
backward, in milliseconds (median of five). TFLOP/s counts one product forward and three after (logits again, two
gradients), so that heads which save a product have more. Peak memory is above the inputs'. A head that is not installed is
left out, one that fails says how. Needs a GPU; --tiny tries the logic on a CPU. Optional: liger-kernel, cut-cross-entropy,
torch >= 2.13.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import cyclopts
import torch
from torch import Tensor
from torch.nn import functional

from tokenweight.weighting.head import per_token_nll

Head = Callable[[Tensor, Tensor, Tensor], Tensor]
CHECKED_ROWS = 4096  # of gradients in fp64
CHUNK_ROWS = 1024  # of fp64 logits
FORWARD, BOTH = 2, 8  # FLOPs a row, width and entry of the vocabulary


def all_logits(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy((hidden @ weight.t()).float(), labels, reduction="none")


def heads() -> dict[str, Head]:
    """What is installed."""
    found: dict[str, Head] = {
        "ours": per_token_nll,
        "ours, fused": partial(per_token_nll, fused=True),
        "all logits in bf16, loss in fp32": all_logits,
    }
    if hasattr(functional, "linear_cross_entropy"):
        found["torch linear_cross_entropy"] = partial(functional.linear_cross_entropy, reduction="none")
    try:
        from liger_kernel.ops import LigerFusedLinearCrossEntropyFunction as Fused
        from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction as Scaled

        def fused(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
            nll: Tensor = Fused.apply(hidden, weight, labels, None, None, -100, 0.0, 0.0, "none")[0]
            return nll

        def scaled(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
            found = Scaled.apply(hidden, weight, labels)
            nll: Tensor = found[0] if isinstance(found, tuple) else found
            return nll

        found |= {"Liger fused linear": fused, "Liger scaled": scaled}
    except ImportError:
        pass
    try:
        from cut_cross_entropy import linear_cross_entropy

        cut = partial(linear_cross_entropy, reduction="none")
        found |= {"cut-cross-entropy": cut, "cut-cross-entropy, nothing filtered": partial(cut, filter_eps=None)}
    except ImportError:
        pass
    return found


def tensors(rows: int, width: int, vocabulary: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states that point at their labels as far as a trained model's do (mean NLL of about 3 nats), and weights."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.randn(vocabulary, width, generator=generator, device=device) * width**-0.5
    labels = torch.randint(0, vocabulary, (rows,), generator=generator, device=device)
    hidden = 2.5 * torch.randn(rows, width, generator=generator, device=device) + 13 * matrix[labels]
    weights = torch.rand(rows, generator=generator, device=device) * 2
    return hidden.to(dtype), matrix.to(dtype), labels, weights


def exact(hidden: Tensor, weight: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """NLL of all rows; gradients of the first ones' weighted sum: fp64."""
    matrix = weight.double()
    parts = [
        functional.cross_entropy(rows.double() @ matrix.t(), of, reduction="none")
        for rows, of in zip(hidden.split(CHUNK_ROWS), labels.split(CHUNK_ROWS), strict=True)
    ]
    d_hidden, d_weight = [], torch.zeros_like(matrix)
    for rows, of, gradient in zip(
        *(x[:CHECKED_ROWS].split(CHUNK_ROWS) for x in (hidden, labels, weights)), strict=True
    ):
        d_logits = torch.softmax(rows.double() @ matrix.t(), dim=-1)
        d_logits[torch.arange(len(of), device=of.device), of] -= 1
        d_logits *= gradient[:, None].double()
        d_hidden.append(d_logits @ matrix)
        d_weight.addmm_(d_logits.t(), rows.double())
    return torch.cat(parts), torch.cat(d_hidden), d_weight


def off(found: Tensor, wanted: Tensor) -> float:
    """Rms of the difference over rms of what is wanted."""
    return float(((found.double() - wanted).square().mean() / wanted.square().mean()).sqrt())


def measure(head: Head, inputs: tuple[Tensor, ...], reference: tuple[Tensor, ...], repeats: int) -> dict[str, Any]:
    """Errors, then times and peak of one head."""
    hidden, weight, labels, weights = inputs
    cuda = hidden.is_cuda
    with torch.no_grad():
        nll = head(hidden, weight, labels).double()
    row: dict[str, Any] = {"nll_rms_nats": float((nll - reference[0]).square().mean().sqrt())}
    leaves = [x.detach().clone().requires_grad_() for x in (hidden[:CHECKED_ROWS], weight)]
    (head(leaves[0], leaves[1], labels[:CHECKED_ROWS]) * weights[:CHECKED_ROWS]).sum().backward()
    row["d_hidden_relative"], row["d_weight_relative"] = (
        off(leaf.grad, wanted) for leaf, wanted in zip(leaves, reference[1:], strict=True) if leaf.grad is not None
    )
    leaves = [x.detach().requires_grad_() for x in (hidden, weight)]

    def both() -> None:
        for leaf in leaves:
            leaf.grad = None
        (head(leaves[0], leaves[1], labels) * weights).sum().backward()

    def forward() -> None:
        with torch.no_grad():
            head(hidden, weight, labels)

    work = hidden.shape[0] * hidden.shape[1] * weight.shape[0] / 1e12
    for name, step, flops in (("forward", forward, FORWARD), ("both", both, BOTH)):
        seconds = []
        for _ in range(repeats + 2):
            if cuda:
                torch.cuda.synchronize()
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            step()
            if cuda:
                torch.cuda.synchronize()
                row[f"{name}_peak_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
            seconds.append(time.perf_counter() - started)
        row[f"{name}_ms"] = 1000 * statistics.median(seconds[2:])
        row[f"{name}_tflops"] = flops * work / row[f"{name}_ms"] * 1000
    return row


def main(rows: int = 32_768, repeats: int = 5, *, tiny: bool = False, out: Path | None = None) -> None:
    """Measure all heads, print one table, write JSON."""
    if not torch.cuda.is_available() and not tiny:
        raise SystemExit("heads.py needs a GPU; --tiny tries its logic on a CPU")
    device = "cpu" if tiny else "cuda"
    inputs = tensors(64 if tiny else rows, 64 if tiny else 4096, 512 if tiny else 128_256, device)
    reference = exact(*inputs)
    print(f"{len(inputs[0])} rows, mean NLL {float(reference[0].mean()):.2f} nats, torch {torch.__version__}")
    print(f"{'head':38s} {'NLL rms':>8s} {'d hidden':>9s} {'d weight':>9s}", end=" ")
    print(f"{'fwd ms':>8s} {'TFLOP/s':>8s} {'both ms':>8s} {'TFLOP/s':>8s} {'GiB':>6s}")
    results: dict[str, Any] = {}
    for name, head in heads().items():
        try:
            row = results[name] = measure(head, inputs, reference, repeats)
        except Exception as error:  # another's kernel may fail in any way
            results[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            print(f"{name:38s} failed: {results[name]['failed'].splitlines()[0]}", flush=True)
            continue
        print(
            f"{name:38s} {row['nll_rms_nats']:8.1e} {row['d_hidden_relative']:9.1e} {row['d_weight_relative']:9.1e}",
            end=" ",
        )
        print(
            f"{row['forward_ms']:8.1f} {row['forward_tflops']:8.0f} {row['both_ms']:8.1f} {row['both_tflops']:8.0f}",
            end=" ",
        )
        print(f"{row.get('both_peak_gib', 0):6.1f}", flush=True)
    if out:
        packages = ("torch", "triton", "liger-kernel", "cut-cross-entropy")
        about = {
            "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(), "tiny": tiny,
            "shape": [*inputs[0].shape, len(inputs[1])], "mean_nll": float(reference[0].mean()),
            "versions": {name: _version(name) for name in packages},
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**about, "heads": results}, indent=1) + "\n")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    cyclopts.run(main)
