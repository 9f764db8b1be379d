"""One training step's loss, from token ids to the weighted NLL: Section 3 from end to end."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokenweight.weighting.head import model_nll
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.shards import SequenceShard
from tokenweight.weighting.weights import Choice, sparse, token_weights, weighted_nll
from tokenweight.weighting.windows import WindowPlan


@dataclass(frozen=True)
class WeightedStep:
    """What a step computed: loss (scalar, with gradient), nll and weights (fp32 [B, M], constants).

    Where processes share the sequences: our predictions [B, C] of both, and our part of the loss, times P.
    """

    loss: Tensor
    nll: Tensor
    weights: Tensor


def weighted_step(
    model: nn.Module,
    token_ids: Tensor,
    weighting: Weighting,
    *,
    sequence_ids: Sequence[int],
    seed: int,
    short_nll: Tensor | None = None,
    own_first_window: WindowPlan | None = None,
    choose: Choice = sparse,
    shard: SequenceShard | None = None,
    scored: Tensor | None = None,
    position_ids: Tensor | None = None,
    position_counts: Tensor | None = None,
) -> WeightedStep:
    """The weighted loss of sequences of equal length, token_ids int64 [B, N].

    `model` has a TokenNLLHead; short_nll fp32 [B, M] from a frozen scorer or from `score_windows`. With
    `own_first_window` the positions of that plan's first window are taken from the long pass: an unfrozen scorer's
    contexts are the same there, and LongCE leaves tokens alone that have no shorter context. With `shard` the processes
    of its group are given the same sequences and share them; the mean of their gradients is that of the whole.
    `scored`, bool [B, M]: the predictions that count, where some do not (padding, prompts); the loss is their mean.
    `position_ids`, int64 [B, N], begin anew with each document of a sequence, and none sees another; with `position_counts`
    they go to the weights (:func:`token_weights`).
    """
    # 1. Long context, with gradient.
    own = slice(token_ids.shape[1] - 1) if shard is None else shard.own_predictions
    entropy = torch.empty_like(token_ids[:, own], dtype=torch.float32) if "long_entropy" in weighting.inputs else None
    nll = model_nll(model, token_ids, shard=shard, entropy=entropy, position_ids=position_ids)
    long_nll = nll.detach()
    if shard is not None:  # weights look at all predictions
        long_nll = shard.gather(nll)
        entropy = None if entropy is None else shard.gather(entropy)
    # 2. Short context, without.
    if short_nll is not None and own_first_window is not None:
        short_nll = own_first_window.with_own_context(short_nll, long_nll)
    # 3. Weights, as constants.
    weights = token_weights(
        long_nll,
        short_nll,
        weighting,
        sequence_ids=sequence_ids,
        seed=seed,
        long_entropy=entropy,
        position=None if position_ids is None else position_ids[:, 1:],
        position_counts=position_counts,
        choose=choose,
        scored=scored,
    )
    # 4. Loss.
    if scored is not None:
        return WeightedStep((weights * nll)[scored].mean(), long_nll, weights)
    ours = weights[:, own]
    loss = weighted_nll(nll, ours)
    return WeightedStep(loss if shard is None else loss * shard.loss_scale, nll.detach(), ours)
