"""From two NLLs to token weights, and the loss: scores (Section 3.1), postprocessing (Section 3.2), weighted NLL (Eq. 2).

D = long_nll - short_nll = log(p_short / p_long) is the negative conditional pointwise mutual information of the
token and the far context (Appendix A): PMI = -D. All functions are pure, on fp32 [B, M]; M is the number of predictions
(the paper's sum to N counts those). Scores and weights have no gradient.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenweight.weighting.scores import ScoreError, ScoreName, find_score, in_words
from tokenweight.weighting.settings import Weighting

Choice = Callable[..., Tensor]  # called as `sparse` is, whose place it takes


def token_scores(score: ScoreName, long_nll: Tensor, short_nll: Tensor | None, **more: Any) -> Tensor:
    """Scores of each prediction, fp32 [B, M], by a function of :mod:`.scores`, which says what `more` it may be given.

    `short_nll` may be None for a score that does not look at it. A user's function gets copies: of the same tensors are the
    loss and the records. ValueError for one that needs what is not given, ScoreError for what a user's raises (SystemExit too),
    TypeError for a function that returns no tensor.
    """
    function = find_score(score).function
    given, parameters = {"long_nll": long_nll, "short_nll": short_nll, **more}, inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if given.get(name) is None and parameter.default is parameter.empty:
            raise ValueError(f"score {score.partition('@')[0]!r} needs {name}")
    read = {name: given[name] for name in parameters if given.get(name) is not None}
    ours = getattr(getattr(function, "__code__", None), "co_filename", "") == find_score.__code__.co_filename
    scores = function(**read) if ours else _of_user(function, score, read)
    if not isinstance(scores, Tensor):
        raise TypeError(f"score {score.partition('@')[0]!r} is not a tensor [B, M] but {type(scores).__name__}")
    return scores.float()


def _of_user(function: Callable[..., Any], score: ScoreName, read: dict[str, Any]) -> Any:
    try:
        return function(**{name: one.clone() if isinstance(one, Tensor) else one for name, one in read.items()})
    except torch.OutOfMemoryError:  # a run tries again
        raise
    except (Exception, SystemExit) as error:  # whatever the function does
        place = score.partition("@")[0]
        raise ScoreError(f"score {place}: {in_words(error, Path(place.rpartition(':')[0]))}") from error


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
    position: Tensor | None = None,
    position_counts: Tensor | None = None,
) -> Tensor:
    """Weight of each prediction's loss: fp32 [B, M], non-negative, finite, without gradient.

    long_nll, short_nll: fp32 [B, M], the NLL of the same tokens with long and with short context (short_nll may be
    None where the weighting does not look at it: uniform, focal, mile). sequence_ids: one number per sequence;
    with `seed` they settle random ties. long_entropy [B, M]: for scores that need it (mile). `choose` makes the
    sparse weights, by default as :func:`sparse` does. Uniform, dense and sparse weights average to 1 over M, or over the
    predictions `scored` (bool [B, M]) of each sequence: the others have weight 0 and are not looked at. position [B, M]:
    where a sequence has several documents; position_counts [N]: of all that training reads, else of what is here. Raises
    ValueError for wrong shapes, FloatingPointError for NLLs that are not finite, and scores that make no weights.
    """
    if position is None:
        position = torch.arange(1, long_nll.shape[-1] + 1, device=long_nll.device).expand_as(long_nll)
    if "position_counts" in weighting.inputs:
        read = position if scored is None else position[scored]
        counts = read.flatten().long().bincount() if position_counts is None else position_counts.to(read.device)
        position_counts = counts.float()
    given = {"long_nll": long_nll, "short_nll": short_nll, "long_entropy": long_entropy, "position": position}
    if scored is not None:
        ties: dict[str, Any] = {"seed": seed, "choose": choose, "position_counts": position_counts}
        weights = torch.zeros_like(long_nll, dtype=torch.float32)
        for row in scored.any(dim=1).nonzero()[:, 0].tolist():
            chosen, ids = scored[row], sequence_ids[row : row + 1]
            own: dict[str, Any] = {
                name: None if value is None else value[row, chosen][None] for name, value in given.items()
            }
            weights[row, chosen] = token_weights(weighting=weighting, sequence_ids=ids, **own, **ties)[0]
        return weights
    tensors = {name: value.detach().float() for name, value in given.items() if value is not None}
    shape = long_nll.shape
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected [B, M] = {tuple(shape)}")
        if not bool(tensor.isfinite().all()):
            raise FloatingPointError(f"{name} is not finite")
    if weighting.postprocessing == "uniform":
        return torch.ones_like(tensors["long_nll"])
    numbers: dict[str, Any] = {**weighting.numbers, "position_counts": position_counts}
    scores = token_scores(weighting.score, **{**given, **tensors, **numbers})
    if scores.shape != shape:
        raise ValueError(f"score {weighting.label} has shape {tuple(scores.shape)}, expected [B, M] = {tuple(shape)}")
    lowest = -math.inf if weighting.postprocessing == "sparse" else 0.0
    refused = ~(scores.isfinite() & (scores >= lowest))
    if bool(refused.any()):
        score = float(scores[refused][0])
        what = f"below {lowest:g}" if math.isfinite(score) else "not finite"
        raise FloatingPointError(f"weighting {weighting.label}: a score is {what} ({score:g})")
    if weighting.lambda_ is not None:  # dense alone has it, and sparse a kappa
        return dense(scores, weighting.lambda_)
    if weighting.kappa is not None:
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
