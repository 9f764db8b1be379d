"""What the authors' public code does otherwise than the paper says, for recipes with `parity: authors`.

Each function takes the place of the function of the same name that it imports (tokenweight.optional.by_parity).
reports/divergences.md is the table of all differences.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenweight.corpus import packing
from tokenweight.training import models
from tokenweight.weighting import windows
from tokenweight.weighting.head import Rounding
from tokenweight.weighting.windows import WindowPlan


def sequence_bos(tokenizer: Any) -> int | None:
    """BOS of any tokenizer that has one: the authors' code takes it for one that adds it (Phi-2's does not)."""
    bos: int | None = tokenizer.bos_token_id
    return bos


def per_document(lengths: packing.Ints, long_tokens: int, *, bos: bool, skipped: int) -> packing.Segments:
    """Chunks at step N whether or not there is a BOS: with one, a token is lost between two sequences."""
    return packing.per_document(lengths, long_tokens, bos=bos, skipped=skipped, step=long_tokens)


def plan_windows(long_tokens: int, short_tokens: int, stride_tokens: int) -> WindowPlan:
    """Windows of an unfrozen scorer whose first also claims position n - 1, which the second scores.

    So the long pass's own NLL is at positions 0..n-1, and the token at index n has D = 0. The second window's
    range stays as it is: its position is scored, and then overwritten.
    """
    plan = windows.plan_windows(long_tokens, short_tokens, stride_tokens)
    own = min(plan.short_tokens, plan.predictions)
    return replace(plan, scored_ranges=((0, own), *plan.scored_ranges[1:]))


def head_rounding(*, frozen: bool) -> Rounding:
    """The authors' models give bf16 logits; in training their cross entropy is bf16 too.

    Their frozen scoring runs under autocast, whose cross entropy is fp32: there only the logits are rounded.
    """
    return "logits" if frozen else "nll"


def scorer_config(model_dir: Path, short_tokens: int) -> Any:
    """A frozen scorer's configuration with its theta but plain RoPE, for `short_tokens`.

    The authors' scorers are built so: Llama 3.1 and 3.2 lose the scaling of their `rope_type` llama3.
    """
    return with_plain_rope(models.scorer_config(model_dir, short_tokens), short_tokens)


def with_plain_rope(config: Any, context_tokens: int) -> Any:
    """A copy of a configuration with its theta but plain RoPE."""
    plain = copy.deepcopy(config)
    kept = {name: config.rope_parameters.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    plain.rope_parameters = {"rope_type": "default"} | {
        name: value for name, value in kept.items() if value is not None
    }
    plain.max_position_embeddings = context_tokens
    return plain


def sparse(scores: Tensor, kappa: float, *, sequence_ids: Sequence[int], seed: int) -> Tensor:
    """The int(kappa * M) highest scores of each sequence get the same weight, the rest 0; fp32 [B, M], mean 1.

    The count is cut off, not rounded; where it is 0 every token is kept. Among equal scores the last in the sequence
    win. Where more than a share 1 - kappa of a row's scores are zero, as many of the lowest scores as there are zeros
    are shuffled first. The authors shuffle by the global generator and in all rows of a batch if any row needs it;
    here a row is shuffled by itself, seeded by (seed, sequence id): no other row's choice can change by that while
    scores are not negative.
    """
    predictions = scores.shape[1]
    zeros = (scores == 0).sum(dim=1)
    order = torch.sort(scores, dim=1, stable=True).indices
    for row, sequence_id in enumerate(sequence_ids):
        count = int(zeros[row])
        if count / predictions > 1 - kappa:
            shuffled = np.random.default_rng([seed, sequence_id]).permutation(count)
            order[row, :count] = order[row, torch.from_numpy(shuffled).to(order.device)]
    kept = order[:, -int(kappa * predictions) :]
    return torch.zeros_like(scores).scatter_(1, kept, predictions / kept.shape[1])
