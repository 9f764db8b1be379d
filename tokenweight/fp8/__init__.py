"""Unfrozen scoring in float8 (`scorer.precision: fp8`): an optional room that nothing else imports.

On the first step of a training it is measured against scores in the training's own precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed

from tokenweight.errors import StageError
from tokenweight.fp8.linears import check_fp8, fp8_linears
from tokenweight.weighting.postprocess import Choice, sparse
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.weights import token_weights

__all__ = ["Fp8Scoring", "check_fp8", "fp8_linears", "top_kappa_overlap"]
MINIMUM_OVERLAP = 0.98
KAPPA_WITHOUT_ONE = 0.2  # for weightings that choose no tokens (dense): the paper's kappa for unfrozen scorers


class Fp8Scoring:
    """What the trainer asks of float8 scoring: its products, and whether they choose the right tokens.

    `measuring` until the first step is finished: the trainer then scores in `precision` too, and :meth:`add` counts,
    over micro-batches and processes, how many of the top-kappa tokens float8 scores choose rightly.
    """

    def __init__(self, weighting: Weighting, precision: str, seed: int, choose: Choice, device: torch.device) -> None:
        self.weighting, self.precision = weighting, precision
        self.overlap = partial(top_kappa_overlap, weighting=weighting, seed=seed, choose=choose)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.measuring = True

    def linears(self, model: Any) -> AbstractContextManager[list[str]]:
        """While open, the linear layers of `model` multiply in float8."""
        return fp8_linears(model)

    def add(self, long_nll: Tensor, fp8_short_nll: Tensor, short_nll: Tensor, sequence_ids: list[int]) -> None:
        """Count a micro-batch: the NLLs [B, M] of whole sequences, as weights see them."""
        counted = self.overlap(long_nll, short_nll, fp8_short_nll, sequence_ids=sequence_ids)
        self.counts += torch.tensor(counted, device=self.counts.device)

    def finish(self) -> float:
        """The overlap over all processes, the same on each; StageError on each where it is too low."""
        self.measuring = False
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(self.counts)
        shared, chosen = self.counts.tolist()
        overlap: float = shared / chosen
        if overlap < MINIMUM_OVERLAP:
            kappa = choosing_weighting(self.weighting).kappa
            raise StageError(
                f"scorer.precision: fp8 scores agree with {self.precision} scores on {overlap:.4f} of the top {kappa:g} "
                f"of tokens, and {MINIMUM_OVERLAP} is needed; set it to 'training' to score in {self.precision}"
            )
        return overlap


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
    return weighting.model_copy(update={"postprocessing": "sparse", "lambda_": None, "kappa": KAPPA_WITHOUT_ONE})
