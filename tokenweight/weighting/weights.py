"""From two NLLs to token weights, scoring, then postprocessing (Section 3); and the weighted criterion (Eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenweight.weighting.postprocess import Choice, dense, sparse
from tokenweight.weighting.scores import token_scores
from tokenweight.weighting.settings import Weighting


@torch.no_grad()
def token_weights(
    long_nll: Tensor,
    short_nll: Tensor | None,
    weighting: Weighting,
    *,
    sequence_ids: Sequence[int],
    seed: int,
    long_entropy: Tensor | None = None,
    choose: Choice = sparse,
    scored: Tensor | None = None,
) -> Tensor:
    """Weight of each prediction's loss: fp32 [B, M], non-negative, finite, without gradient.

    long_nll, short_nll: fp32 [B, M], the NLL of the same tokens with long and with short context (short_nll may be
    None where the weighting does not look at it: uniform, focal, mile). sequence_ids: one number per sequence;
    with `seed` they settle random ties. long_entropy [B, M]: for the score `mile` only. `choose` makes the
    sparse weights, by default as :func:`sparse` does. Uniform, dense and sparse weights average to 1 over M, or over the
    predictions `scored` (bool [B, M]) of each sequence: the others have weight 0 and are not looked at. Raises
    ValueError for wrong shapes, FloatingPointError for NLLs that are not finite.
    """
    if scored is not None:
        weights = torch.zeros_like(long_nll, dtype=torch.float32)
        for row, chosen in enumerate(scored):
            if bool(chosen.any()):
                own = [None if given is None else given[row, chosen][None] for given in (short_nll, long_entropy)]
                weights[row, chosen] = token_weights(
                    long_nll[row, chosen][None], own[0], weighting, sequence_ids=sequence_ids[row : row + 1], seed=seed,
                    long_entropy=own[1], choose=choose,
                )[0]  # fmt: skip
        return weights
    given = {"long_nll": long_nll, "short_nll": short_nll, "long_entropy": long_entropy}
    tensors = {name: value.detach().float() for name, value in given.items() if value is not None}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.shape != long_nll.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected [B, M] = {tuple(long_nll.shape)}")
        if not bool(tensor.isfinite().all()):
            raise FloatingPointError(f"{name} is not finite")
    if weighting.postprocessing == "uniform":
        return torch.ones_like(tensors["long_nll"])
    scores = token_scores(
        weighting.score,
        tensors["long_nll"],
        tensors.get("short_nll"),
        long_entropy=tensors.get("long_entropy"),
        shift_k=weighting.shift_k,
        gamma=weighting.gamma,
    )
    if weighting.postprocessing == "dense":
        assert weighting.lambda_ is not None
        return dense(scores, weighting.lambda_)
    if weighting.postprocessing == "sparse":
        assert weighting.kappa is not None
        return choose(scores, weighting.kappa, sequence_ids=sequence_ids, seed=seed)
    return scores  # "raw": the score is the weight


def weighted_nll(nll: Tensor, weights: Tensor) -> Tensor:
    """Mean over predictions of weight * NLL, then mean over sequences (Eq. 2): a scalar, in nats.

    nll [B, M] with gradient; weights [B, M] are constants. All sequences have the same length, so that each
    prediction counts by its weight alone; raises ValueError where the shapes say otherwise.
    """
    if nll.ndim != 2 or nll.shape != weights.shape:
        raise ValueError(f"nll {tuple(nll.shape)} and weights {tuple(weights.shape)} must be the same [B, M]")
    return (weights.detach() * nll).mean(dim=1).mean()
