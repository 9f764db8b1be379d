"""What a long sequence's step keeps and what it computes again, and by which attention kernels.

Measured on one H200, Llama-3 8B shapes, 32k tokens (benchmarks/training_cost.py): cuDNN's attention with kept attention
outputs takes 0.72 of the time of flash attention with full recomputation, for 0.1 GiB more a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
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
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def checkpoint_activations(model: Any, checkpointing: Checkpointing) -> None:
    """Have a transformers model keep of each layer only its input (`full`) and compute the rest again in backward.

    `keep_attention` keeps the attention output as well, whose computation at 32k tokens is more than a third of a
    layer's forward pass; `keep_projections` also queries, keys, values and the output projection, so that of the
    products only the wide ones of the MLP run again. Each keeps more memory than the one before: with Llama-3 8B at
    32k tokens 0.25, 0.5 and 1.1 GiB a layer.
    """
    if checkpointing == "none":
        return
    arguments: dict[str, Any] = {"use_reentrant": False}
    if checkpointing != "full":
        kept = _is_attention if checkpointing == "keep_attention" else _is_attention_or_projection
        arguments["context_fn"] = partial(_keeping, kept)
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is on its way out
    (newer or model.gradient_checkpointing_enable)(arguments)


class _Only(TorchDispatchMode):
    """Hands torch's own mode the operations whose output is kept, and runs all others as if no mode were there.

    Torch's mode alone wants to see the same operations again in backward, as often as in forward. ZeRO-3 breaks that:
    what its hooks do to gather a layer's parameters depends on which of them are there already.
    """

    supports_higher_order_operators = True

    def __init__(self, kept: Callable[..., bool], mode: TorchDispatchMode) -> None:
        super().__init__()
        self.kept, self.mode = kept, mode

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled parts (tokenweight.training.fused) stay compiled under this mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.kept(func, args):
            return self.mode.__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def _keeping(kept: Callable[..., bool]) -> tuple[_Only, _Only]:
    forward, recomputation = create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.MUST_SAVE)
    return _Only(kept, forward), _Only(kept, recomputation)


def _is_attention(operation: Any, _: Sequence[Any]) -> bool:
    return operation in _ATTENTION


def _is_attention_or_projection(operation: Any, arguments: Sequence[Any]) -> bool:
    """Attention, and products whose output is no wider than their input: not the MLP's first ones.

    (Its last one is never computed again: nothing in the layer's backward pass needs its output.)
    """
    if operation in _PRODUCTS:
        rows, matrix = arguments[-2:]
        return bool(matrix.shape[1] <= rows.shape[1])
    return operation in _ATTENTION


def attention_kernels() -> AbstractContextManager[Any]:
    """The fastest attention that torch has for the present device: cuDNN's on Hopper, elsewhere torch's own choice."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < HOPPER:
        return nullcontext()
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order, set_priority=True)
