"""How many of the top-kappa tokens fp8 scoring chooses as bf16 scoring does, on a trained model.

    python benchmarks/fp8_overlap.py [--model DIR] [--sequences 8] [--out FILE.json]

By default the shipped base, extended to four times its context as the smoke recipes do (not trained any further), on
text of the synthetic novel that it has not seen. Unfrozen scoring: abs(PMI) from the long pass in bf16 and from short
windows in the precision of the row. The row fp32 shows how far bf16 itself is from exact. On a CPU fp8 products are
those of torch's CPU kernel: the same rounding of inputs and weights, sums in fp32.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenweight.assets import smoke_base_dir
from tokenweight.context.extend import extend
from tokenweight.corpus.stages import Chunk
from tokenweight.fp8 import MINIMUM_OVERLAP, check_fp8, fp8_linears, top_kappa_overlap
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Chunking, Execution, Extension, NovelCorpus, Weighting
from tokenweight.training.kernels import attention_kernels
from tokenweight.training.models import bos_token_id, load_model, load_tokenizer
from tokenweight.weighting import model_nll, plan_windows, score_windows

KAPPAS = (0.2, 0.4)  # the paper's for unfrozen and frozen scorers (Section 4)
UNSEEN_SEED = 3_000_017
SMOKE_EXTENSION = Extension(long_tokens=4096, rope_theta=306_000.0)


def main() -> None:
    """Score in every precision, print the table, write JSON."""
    options = _options()
    device = torch.device(options.device)
    check_fp8(device)
    with tempfile.TemporaryDirectory() as folder:
        model_dir = options.model
        if model_dir is None:
            extend(smoke_base_dir(), SMOKE_EXTENSION, Path(folder))
            model_dir = Path(folder) / "model"
        rows, counts = measure(model_dir, options, device, Path(folder))
    report(rows, counts, options, device)


@torch.no_grad()
def measure(
    model_dir: Path, options: argparse.Namespace, device: torch.device, folder: Path
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """One row for each precision of the scoring pass, and what was scored."""
    model = load_model(model_dir, torch.bfloat16).to(device).eval()
    context = model.config.max_position_embeddings
    long_tokens = options.long_tokens or context
    plan = plan_windows(long_tokens, long_tokens // 4, 3 * long_tokens // 16)
    ids = unseen_tokens(model_dir, long_tokens, options.sequences, folder).to(device)
    bos = bos_token_id(load_tokenizer(model_dir), model.config)

    def score(model: Any, products: AbstractContextManager[Any]) -> Tensor:
        with products:
            per_batch = plan.long_tokens // plan.short_tokens
            nll = score_windows(model, ids, plan, bos_token_id=bos, windows_per_batch=per_batch, first_window=False)
        return plan.with_own_context(nll, long_nll)

    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "bf16": nullcontext,
        "fp8": partial(fp8_linears, model),
    }
    with attention_kernels():
        long_nll = torch.cat([model_nll(model, row[None]) for row in ids])
        scored = {name: score(model, products()) for name, products in ways.items()}
        scored["fp32"] = score(model.float(), nullcontext())
    rows = []
    for name, nll in scored.items():
        difference = (nll - scored["bf16"])[:, plan.short_tokens - 1 :]  # the rest is the long pass's own
        row: dict[str, Any] = {"scoring": name, "nll_rms_difference": difference.square().mean().sqrt().item()}
        row["overlaps"] = {kappa: overlap(long_nll, scored["bf16"], nll, kappa) for kappa in KAPPAS}
        rows.append(row)
    return rows, {"sequences": len(ids), "long_tokens": long_tokens, "short_tokens": plan.short_tokens}


def overlap(long_nll: Tensor, short_nll: Tensor, other_short_nll: Tensor, kappa: float) -> float:
    """The share of tokens chosen alike."""
    shared, chosen = top_kappa_overlap(
        long_nll,
        short_nll,
        other_short_nll,
        Weighting(postprocessing="sparse", kappa=kappa),
        sequence_ids=range(len(long_nll)),
        seed=0,
    )
    return shared / chosen


def unseen_tokens(tokenizer_dir: Path, long_tokens: int, sequences: int, folder: Path) -> Tensor:
    """Sequences [S, N] of a synthetic novel of another seed than any that a model was trained on."""
    corpus = NovelCorpus(seed=UNSEEN_SEED, documents=sequences, document_tokens=2 * long_tokens)
    chunks = folder / "chunks"
    stage = Chunk(corpus=corpus, chunking=Chunking(long_tokens=long_tokens, sequences=sequences))
    stage.run({"tokenizer": tokenizer_dir}, chunks, Execution(), no_progress)
    return torch.from_numpy(np.load(chunks / "tokens.npy").astype(np.int64))


def report(
    rows: list[dict[str, Any]], counts: dict[str, int], options: argparse.Namespace, device: torch.device
) -> None:
    """Print the table; write it where asked to."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, torch's own kernel for float8 products"
    model = str(options.model.name) if options.model else "the shipped smoke base, extended"
    print(f"{model}; {counts['sequences']} unseen sequences of {counts['long_tokens']} tokens, windows of ", end="")
    print(f"{counts['short_tokens']}; {name}; torch {torch.__version__}")
    print(f"overlap with bf16 scoring of the top kappa by abs(PMI); training asks for {MINIMUM_OVERLAP}")
    print(f"{'scoring':24s} " + " ".join(f"kappa {kappa:<4g}" for kappa in KAPPAS) + "  NLL difference (rms, nats)")
    for row in rows:
        cells = " ".join(f"{row['overlaps'][kappa]:10.4f}" for kappa in KAPPAS)
        print(f"{row['scoring']:24s} {cells}  {row['nll_rms_difference']:.4f}")
    if options.out:
        content = {
            "model": model, **counts, "seed": UNSEEN_SEED, "device": name, "rows": rows,
            "versions": {name: version(name) for name in ("torch", "transformers")} | {"python": platform.python_version()},
        }  # fmt: skip
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint of long context; default: the shipped base, extended")
    parser.add_argument("--long-tokens", type=int, help="default: the model's context")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
