"""Weightings of one's own: functions of what their parameters name (docs/method.md), for own-weighting.yaml."""

from torch import Tensor


def sure_gain(long_nll: Tensor, short_nll: Tensor) -> Tensor:
    """What the far context gains, more where the model is sure then: (short - long) * p_long, where positive."""
    return (short_nll - long_nll).clamp_min(0) * (-long_nll).exp()


def later_tokens(position: Tensor, gamma: float = 0.5) -> Tensor:
    """(position / mean position)^gamma: tokens with more before them count more. Needs no scorer."""
    return (position / position.mean(dim=1, keepdim=True)) ** gamma
