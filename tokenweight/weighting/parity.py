"""What the authors' public code does otherwise than the paper says, for recipes with `parity: authors`.

reports/divergences.md is the table of all differences; the rest of what that setting selects is in corpus/packing.py
(chunks) and context/rope.py (frozen scorers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tokenweight.recipes.schema import Parity
from tokenweight.weighting.head import Rounding
from tokenweight.weighting.windows import WindowPlan


def head_rounding(parity: Parity, *, frozen: bool) -> Rounding:
    """What the head rounds to bf16. The authors' models give bf16 logits; in training their cross entropy is bf16 too.

    Their frozen scoring runs under autocast, whose cross entropy is fp32: there only the logits are rounded.
    """
    if parity == "paper":
        return "none"
    return "logits" if frozen else "nll"


def with_one_more_own_column(plan: WindowPlan) -> WindowPlan:
    """A plan whose first window also claims column n - 1, which the second window scores (unfrozen scorers).

    So the long pass's own NLL stands in columns 0..n-1, and the token at index n has D = 0. The second window's
    range stays as it is: its column is scored, and then overwritten.
    """
    own = min(plan.short_tokens, plan.columns)
    return replace(plan, fills=((0, own), *plan.fills[1:]))


def sparse(scores: Tensor, kappa: float, *, sequence_ids: Sequence[int], seed: int) -> Tensor:
    """The int(kappa * M) highest scores of each sequence get the same weight, the rest 0; fp32 [B, M], mean 1.

    The count is cut off, not rounded; where it is 0 every token is kept. Among equal scores the last in the sequence
    win. Where more than a share 1 - kappa of a row's scores are zero, as many of the lowest scores as there are zeros
    are shuffled first. The authors shuffle by the global generator and in all rows of a batch if any row needs it;
    here a row is shuffled by itself, seeded by (seed, sequence id): no other row's choice can change by that while
    scores are not negative.
    """
    columns = scores.shape[1]
    zeros = (scores == 0).sum(dim=1)
    order = torch.sort(scores, dim=1, stable=True).indices
    for row, sequence_id in enumerate(sequence_ids):
        count = int(zeros[row])
        if count / columns > 1 - kappa:
            shuffled = np.random.default_rng([seed, sequence_id]).permutation(count)
            order[row, :count] = order[row, torch.from_numpy(shuffled).to(order.device)]
    kept = order[:, -int(kappa * columns) :]
    return torch.zeros_like(scores).scatter_(1, kept, columns / kept.shape[1])
