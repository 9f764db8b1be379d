"""Whether fp8 scores are good enough for this model and these tokens: measured on the first optimizer step of a run."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from tokenweight.errors import StageError
from tokenweight.training.request import TrainRequest
from tokenweight.weighting.overlap import choosing_weighting, top_kappa_overlap
from tokenweight.weighting.windows import WindowPlan

MINIMUM_OVERLAP = 0.98


class Fp8Acceptance:
    """Counts, over micro-batches and processes, how many of the top-kappa tokens fp8 scores choose rightly.

    What is right is the choice by scores in the training's own precision.
    """

    def __init__(self, request: TrainRequest, plan: WindowPlan, device: torch.device) -> None:
        self.request, self.plan = request, plan
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)

    def add(self, long_nll: Tensor, fp8_short_nll: Tensor, short_nll: Tensor, sequence_ids: list[int]) -> None:
        """Count a micro-batch: the NLLs [B, M] of whole sequences, as unfrozen scoring gives them."""
        in_fp8, right = (self.plan.with_own_context(nll, long_nll) for nll in (fp8_short_nll, short_nll))
        request = self.request
        counted = top_kappa_overlap(
            long_nll,
            right,
            in_fp8,
            request.weighting,
            sequence_ids=sequence_ids,
            seed=request.seed,
            parity=request.parity,
        )
        self.counts += torch.tensor(counted, device=self.counts.device)

    def finish(self) -> float:
        """The overlap over all processes, the same on each; StageError on each where it is too low."""
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(self.counts)
        shared, chosen = self.counts.tolist()
        overlap: float = shared / chosen
        if overlap < MINIMUM_OVERLAP:
            kappa = choosing_weighting(self.request.weighting).kappa
            raise StageError(
                f"scorer.precision: fp8 scores agree with {self.request.training.precision} scores on {overlap:.4f} of "
                f"the top {kappa:g} of tokens, and {MINIMUM_OVERLAP} is needed; set it to 'training' to score in "
                f"{self.request.training.precision}"
            )
        return overlap
