"""The weighted training criterion (Eq. 2)."""

from __future__ import annotations

from torch import Tensor


def weighted_nll(nll: Tensor, weights: Tensor) -> Tensor:
    """Mean over predictions of weight * NLL, then mean over sequences: a scalar, in nats.

    nll [B, M] with gradient; weights [B, M] are constants. All sequences have the same length, so that each
    prediction counts by its weight alone; raises ValueError where the shapes say otherwise.
    """
    if nll.ndim != 2 or nll.shape != weights.shape:
        raise ValueError(f"nll {tuple(nll.shape)} and weights {tuple(weights.shape)} must be the same [B, M]")
    return (weights.detach() * nll).mean(dim=1).mean()
