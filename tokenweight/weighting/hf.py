"""Token weighting for any HF Trainer, without this project's pipeline."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import Tensor, nn

from tokenweight.weighting.head import install_head
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.windows import plan_windows, score_windows


def add_token_weighting(
    trainer: Any,
    weighting: Weighting,
    *,
    short_tokens: int,
    stride_tokens: int,
    bos_token_id: int | None = None,
    windows_per_batch: int = 4,
    seed: int = 0,
) -> None:
    """Give a transformers.Trainer the paper's loss; its loop, optimizer and arguments stay as they are.

    Batches need `input_ids` [B, N] of one length without padding. With a column `short_nll` [B, N - 1] that frozen
    scorer's NLL is used; without one the model scores itself on windows of `short_tokens` (unfrozen). Random ties
    depend on the seed and the sequence's own tokens. Set remove_unused_columns=False to keep extra columns.
    """
    install_head(trainer.model)

    def compute_loss(
        model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        token_ids = inputs["input_ids"]
        plan = plan_windows(token_ids.shape[1], short_tokens, stride_tokens)
        short_nll = inputs.get("short_nll")
        unfrozen = weighting.needs_short_nll and short_nll is None
        if unfrozen:
            short_nll = score_windows(
                model,
                token_ids,
                plan,
                bos_token_id=bos_token_id,
                windows_per_batch=windows_per_batch,
                first_window=False,
            )
        step = weighted_step(
            model,
            token_ids,
            weighting,
            sequence_ids=[_content_id(sequence) for sequence in token_ids],
            seed=seed,
            short_nll=short_nll,
            own_first_window=plan if unfrozen or weighting.score == "long_ce" else None,
        )
        return (step.loss, {"nll": step.nll}) if return_outputs else step.loss

    trainer.compute_loss = compute_loss
    trainer.loss_is_scaled_for_ga = False  # a mean over sequences: the Trainer divides by its accumulation steps


def _content_id(token_ids: Tensor) -> int:
    digest = hashlib.sha256(token_ids.cpu().numpy().astype("<u4").tobytes()).digest()
    return int.from_bytes(digest[:8], "little")
