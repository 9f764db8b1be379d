"""What `parity: authors` changes on the shipped base: `python scripts/measure_divergences.py [--sequences 16]`.

The base is extended to 4096 tokens as at smoke scale, untrained; 4096-token sequences of the synthetic novel, windows
1024/768. Prints the figures of reports/divergences.md. Two to three minutes on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import tokenweight.authors_compat as authors
from tokenweight.assets import smoke_base_dir
from tokenweight.context.extend import extend
from tokenweight.corpus.stages import Chunk
from tokenweight.progress import no_progress
from tokenweight.recipes import load
from tokenweight.recipes.schema import Execution
from tokenweight.training.models import load_model
from tokenweight.weighting import model_nll, plan_windows, score_windows
from tokenweight.weighting.head import Rounding
from tokenweight.weighting.weights import sparse
from tokenweight.weighting.windows import WindowPlan

ROUNDINGS: tuple[Rounding, ...] = ("none", "nll")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=16)
    sequences = parser.parse_args().sequences
    recipe = load("table-3/unfrozen-sparse", "smoke")
    assert recipe.extension
    assert recipe.corpus
    assert recipe.chunking
    plan = plan_windows(4096, 1024, 768)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        chunking = recipe.chunking.model_copy(update={"sequences": sequences})
        stage = Chunk(corpus=recipe.corpus, chunking=chunking, short_tokens=1024)
        stage.run({"tokenizer": smoke_base_dir()}, work, Execution(), no_progress)
        ids = torch.from_numpy(np.load(work / "tokens.npy").astype(np.int64))
        extend(smoke_base_dir(), recipe.extension, work)
        nlls = {
            (dtype, rounding): score(work / "model", ids, plan, rounding, dtype)
            for dtype in (torch.float32, torch.bfloat16)
            for rounding in ROUNDINGS
        }
        frozen = {rounding: windows(smoke_base_dir(), ids, plan, rounding) for rounding in ("none", "logits")}

    one_more = authors.plan_windows(4096, 1024, 768)
    past = slice(plan.scored_ranges[0][1], None)
    exact = abs_pmi(*nlls[torch.float32, "none"], plan)
    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = nlls[dtype, "none"], nlls[dtype, "nll"]
        unfrozen, unfrozen_bf16 = (abs_pmi(*pair, plan) for pair in (ours, theirs))
        print(f"--- model in {dtype}, {len(ids)} sequences of 4096 tokens")
        print(f"rms of bf16 logits and NLL against the fp32 head: {rms(theirs[0] - ours[0]):.4f} nats")
        print(f"rms against the fp32 model with the fp32 head: {rms(ours[0] - nlls[torch.float32, 'none'][0]):.4f}")
        print(f"abs(PMI) past the first window: median {unfrozen[:, past].median():.4f}")
        print(f"D exactly 0 there: {zero_share(unfrozen[:, past]):.2%}, bf16 {zero_share(unfrozen_bf16[:, past]):.2%}")
        print(f"top 0.2, unfrozen: {moved(unfrozen, unfrozen_bf16, 0.2):.2%} of the set moves by bf16 logits and NLL")
        print(f"top 0.2, unfrozen: {moved(exact, unfrozen, 0.2):.2%} moves by the model's own precision")
        print(f"top 0.2, unfrozen: {moved(unfrozen, abs_pmi(*ours, one_more), 0.2):.3%} by one more own position")
        by_frozen, by_frozen_bf16 = (ours[0] - frozen["none"]).abs(), (theirs[0] - frozen["logits"]).abs()
        print(f"top 0.4, frozen: {moved(by_frozen, by_frozen_bf16, 0.4):.2%} of the set moves by bf16")
        for name, scores, kappa in (("exact", unfrozen, 0.2), ("bf16", unfrozen_bf16, 0.2), ("frozen", by_frozen, 0.4)):
            print(f"top {kappa}, {name} NLL: {ties(scores, kappa):.3%} of the set moves by count and ties")


def score(
    model_dir: Path, ids: Tensor, plan: WindowPlan, rounding: Rounding, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Long and windowed short NLL [B, M] of the same model."""
    model = load_model(model_dir, dtype, rounding=rounding).eval()
    with torch.no_grad():
        long_nll = torch.cat([model_nll(model, row) for row in ids.split(1)])
    return long_nll, score_windows(model, ids, plan, bos_token_id=int(ids[0, 0]), windows_per_batch=4)


def windows(model_dir: Path, ids: Tensor, plan: WindowPlan, rounding: Rounding) -> Tensor:
    """Short NLL [B, M] by a frozen scorer in fp32."""
    model = load_model(model_dir, torch.float32, rounding=rounding).eval()
    return score_windows(model, ids, plan, bos_token_id=int(ids[0, 0]), windows_per_batch=4)


def abs_pmi(long_nll: Tensor, short_nll: Tensor, plan: WindowPlan) -> Tensor:
    """Unfrozen scores [B, M]."""
    return (long_nll - plan.with_own_context(short_nll, long_nll)).abs()


def zero_share(values: Tensor) -> float:
    """Share of exact zeros."""
    return (values == 0).float().mean().item()


def rms(values: Tensor) -> float:
    """Root mean square."""
    return values.square().mean().sqrt().item()


def moved(one: Tensor, other: Tensor, kappa: float) -> float:
    """Share of the tokens chosen by the scores `one` that the scores `other` do not choose."""
    first, second = (sparse(s, kappa, sequence_ids=range(len(s)), seed=0) > 0 for s in (one, other))
    return ((first & ~second).sum() / first.sum()).item()


def ties(scores: Tensor, kappa: float) -> float:
    """Share of the tokens that our rule chooses and the authors' does not."""
    ours, theirs = (
        rule(scores, kappa, sequence_ids=range(len(scores)), seed=0) > 0 for rule in (sparse, authors.sparse)
    )
    return ((ours & ~theirs).sum() / ours.sum()).item()


if __name__ == "__main__":
    main()
