"""How far two ways of scoring agree on which tokens matter: the overlap of their top-kappa sets."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tokenweight.weighting.postprocess import Choice, sparse
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.weights import token_weights

KAPPA_WITHOUT_ONE = 0.2  # for weightings that choose no tokens (dense): the paper's kappa for unfrozen scorers


def top_kappa_overlap(
    long_nll: Tensor,
    short_nll: Tensor,
    other_short_nll: Tensor,
    weighting: Weighting,
    *,
    sequence_ids: Sequence[int],
    seed: int,
    choose: Choice = sparse,
) -> tuple[int, int]:
    """Tokens among the top kappa by both of two short-context NLLs, and tokens among the top kappa by either one.

    All NLLs fp32 [B, M] of the same tokens; counts over all B sequences, so that those of batches and processes add
    up: the overlap is their ratio, from kappa (by chance) to 1. The scores are the weighting's, and the sets are those
    that sparse postprocessing keeps (Section 3.2), by its kappa or by :data:`KAPPA_WITHOUT_ONE`. Ties fall alike.
    """
    choosing = choosing_weighting(weighting)
    chosen, also = (
        token_weights(long_nll, nll, choosing, sequence_ids=sequence_ids, seed=seed, choose=choose) > 0
        for nll in (short_nll, other_short_nll)
    )
    return int((chosen & also).sum()), int(chosen.sum())


def choosing_weighting(weighting: Weighting) -> Weighting:
    """The sparse weighting that ranks tokens as `weighting` does."""
    if weighting.postprocessing == "sparse":
        return weighting
    return Weighting(
        score=weighting.score,
        postprocessing="sparse",
        kappa=KAPPA_WITHOUT_ONE,
        shift_k=weighting.shift_k,
        gamma=weighting.gamma,
    )
