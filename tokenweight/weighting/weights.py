"""From two NLLs to token weights, and the loss: scores (Section 3.1), postprocessing (Section 3.2), weighted NLL (Eq. 2).

D = long_nll - short_nll = log(p_short / p_long) is the negative conditional pointwise mutual information of the
token and the far context (Appendix A): PMI = -D. All functions are pure, on fp32 [B, M]; M is the number of predictions
(the paper's sum to N counts those). Scores and weights have no gradient.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tokenweight.weighting.settings import ScoreName, Weighting

DEFAULT_GAMMA: dict[ScoreName, float] = {"long_ce": 5.0, "focal": 2.0, "mile": 1.0}
Choice = Callable[..., Tensor]  # called as `sparse` is, whose place it takes


def token_scores(
    score: ScoreName,
    long_nll: Tensor,
    short_nll: Tensor | None,
    *,
    long_entropy: Tensor | None = None,
    shift_k: float = 2.0,
    gamma: float | None = None,
) -> Tensor:
    """Scores of each prediction, fp32 [B, M]; all but `excess` are non-negative.

    abs_pmi |D| (Eq. 5); ppmi max(-D, 0), npmi max(D, 0) and their shifts by ln k (Section 5.3); excess D
    (Eq. 4, the reference at the same context); long_ce min(exp(-D), gamma); focal (1 - p_long)^gamma;
    mile (1 + H)^gamma with H the long model's entropy. `short_nll` may be None for focal and mile.
    """
    if score == "focal":
        return (-torch.expm1(-long_nll)).clamp_min(0).pow(gamma or DEFAULT_GAMMA["focal"])
    if score == "mile":
        if long_entropy is None:
            raise ValueError("score 'mile' needs long_entropy, the entropy of the long model's predictions")
        return (1 + long_entropy).pow(gamma or DEFAULT_GAMMA["mile"])
    if short_nll is None:
        raise ValueError(f"score {score!r} needs short_nll")
    negative_pmi = long_nll - short_nll
    shift = math.log(shift_k) if score in ("sppmi", "snpmi") else 0.0
    match score:
        case "abs_pmi":
            return negative_pmi.abs()
        case "ppmi" | "sppmi":
            return (-negative_pmi - shift).clamp_min(0)
        case "npmi" | "snpmi":
            return (negative_pmi - shift).clamp_min(0)
        case "excess":
            return negative_pmi
        case "long_ce":
            cap = gamma or DEFAULT_GAMMA["long_ce"]
            return (-negative_pmi).clamp_max(math.log(cap)).exp()


def dense(scores: Tensor, lambda_: float) -> Tensor:
    """Interpolation of the normalised scores with uniform weights (Eq. 8): lambda + (1 - lambda) * norm(score).

    A sequence whose scores are all zero gets uniform weights.
    """
    total = scores.double().sum(dim=1, keepdim=True)
    share = scores.double() / total.where(total > 0, 1.0)
    normalised = torch.where(total > 0, scores.shape[1] * share, 1.0)
    return (lambda_ + (1 - lambda_) * normalised).float()


def sparse(scores: Tensor, kappa: float, *, sequence_ids: Sequence[int], seed: int) -> Tensor:
    """The round(kappa * M) highest scores of each sequence (at least one) get M / count, the rest exactly 0.

    Ties are broken at random. So where fewer scores than that are above zero, the rest is drawn at random from the
    zeros (Section 5.3). The draw depends on (seed, sequence id) alone: it is the same on any number of devices,
    in any batch, and after a resume.
    """
    if len(sequence_ids) != scores.shape[0]:
        raise ValueError(f"{len(sequence_ids)} sequence ids for {scores.shape[0]} sequences")
    predictions = scores.shape[1]
    count = max(1, round(kappa * predictions))
    weights = torch.zeros_like(scores)
    for row, sequence_id in enumerate(sequence_ids):
        permutation = np.random.default_rng([seed, sequence_id]).permutation(predictions)
        shuffled = torch.from_numpy(permutation).to(scores.device)
        order = torch.sort(scores[row, shuffled], descending=True, stable=True).indices
        weights[row, shuffled[order[:count]]] = predictions / count
    return weights


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
