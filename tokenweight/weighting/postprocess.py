"""Postprocessing (Section 3.2): from scores to weights that are non-negative and average to 1.

Pure functions on fp32 [B, M]; M is the number of predictions (the paper's sum to N counts those).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Choice = Callable[..., Tensor]  # called as `sparse` is, whose place it takes


def dense(scores: Tensor, lambda_: float) -> Tensor:
    """Interpolation of the normalised scores with uniform weights (Eq. 8): lambda + (1 - lambda) * norm(score).

    A sequence whose scores are all zero gets uniform weights. Raises ValueError for lambda outside [0, 1] or
    a negative score.
    """
    if not 0 <= lambda_ <= 1:
        raise ValueError(f"lambda must lie in [0, 1], not {lambda_}")
    if bool((scores < 0).any()):
        raise ValueError("dense weights need scores that are not negative")
    total = scores.double().sum(dim=1, keepdim=True)
    share = scores.double() / total.where(total > 0, 1.0)
    normalised = torch.where(total > 0, scores.shape[1] * share, 1.0)
    return (lambda_ + (1 - lambda_) * normalised).float()


def sparse(scores: Tensor, kappa: float, *, sequence_ids: Sequence[int], seed: int) -> Tensor:
    """The round(kappa * M) highest scores of each sequence (at least one) get M / count, the rest exactly 0.

    Ties are broken at random. So where fewer scores than that are above zero, the rest is drawn at random from the
    zeros (Section 5.3). The draw depends on (seed, sequence id) alone: it is the same on any number of devices,
    in any batch, and after a resume. Raises ValueError for kappa outside (0, 1].
    """
    if not 0 < kappa <= 1:
        raise ValueError(f"kappa must lie in (0, 1], not {kappa}")
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
