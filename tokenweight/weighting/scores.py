"""Token scores (Section 3.1): how much the far context matters for each prediction.

D = long_nll - short_nll = log(p_short / p_long) is the negative conditional pointwise mutual information of the
token and the far context (Appendix A): PMI = -D. All functions are pure, on fp32 [B, M], without gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokenweight.weighting.settings import ScoreName

DEFAULT_GAMMA: dict[ScoreName, float] = {"long_ce": 5.0, "focal": 2.0, "mile": 1.0}


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
