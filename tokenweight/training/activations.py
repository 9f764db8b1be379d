"""What a long sequence's step keeps and what it computes again, and by which attention kernels.

Measured on one H200, Llama-3 8B shapes, 32k tokens (benchmarks/training_cost.py): cuDNN's attention with kept attention
outputs takes 0.72 of the time of flash attention with full recomputation, for 0.1 GiB more a layer.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from tokenweight.recipes.schema import Checkpointing

HOPPER = (9, 0)
_ATTENTION = tuple(
    getattr(torch.ops.aten, name).default
    for name in (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
)


def checkpoint_activations(model: Any, checkpointing: Checkpointing) -> None:
    """Have a transformers model keep only each layer's input (`full`), and its attention output (`keep_attention`).

    `keep_attention` computes everything but the attention again, which at 32k tokens is more than a third of a
    layer's forward pass.
    """
    if checkpointing == "none":
        return
    arguments: dict[str, Any] = {"use_reentrant": False}
    if checkpointing == "keep_attention":
        arguments["context_fn"] = _keep_attention
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is on its way out
    (newer or model.gradient_checkpointing_enable)(arguments)


def _keep_attention() -> tuple[Any, Any]:
    forward, recomputation = create_selective_checkpoint_contexts(_policy)
    return forward, recomputation


def _policy(_: Any, operation: Any, *arguments: Any, **keywords: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE


def attention_kernels() -> AbstractContextManager[Any]:
    """The fastest attention that torch has for the present device: cuDNN's on Hopper, elsewhere torch's own choice."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < HOPPER:
        return nullcontext()
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order, set_priority=True)
