"""How a long sequence's step is computed on a device: what it keeps for backward, by which kernels attention and norms run.

Measured on one H200, Llama-3 8B shapes, 32k tokens (benchmarks/training_cost.py): cuDNN's attention with kept attention
outputs takes 0.72 of the time of flash attention with full recomputation, for 0.1 GiB more a layer. Fused elementwise
parts, in ZeRO-3 on two H200 (benchmarks/zero3.py): 0.90 of the time of a step.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from inspect import signature
from types import MethodType
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Checkpointing, Execution
from tokenweight.weighting.head import TokenNLLHead, compiled

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


def checkpoint_activations(model: Any, checkpointing: Checkpointing, *, offload: bool = False) -> None:
    """Have a transformers model keep of each layer only its input (`full`) and compute the rest again in backward.

    `keep_attention` keeps the attention output as well, whose computation at 32k tokens is more than a third of a
    layer's forward pass; `keep_projections` also queries, keys, values and the output projection, so that of the
    products only the wide ones of the MLP run again. Each keeps more memory than the one before: with Llama-3 8B at
    32k tokens 0.25, 0.5 and 1.1 GiB a layer. With `offload` the layers' inputs (the 0.25) are in the host's pinned memory.

    Raises UserError where transformers cannot offload.
    """
    if checkpointing == "none":
        return
    arguments: dict[str, Any] = {"use_reentrant": False}
    if checkpointing != "full":
        kept = partial(_is_kept, projections=checkpointing == "keep_projections")
        arguments["context_fn"] = partial(_keeping, kept)
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is on its way out
    enable = newer or model.gradient_checkpointing_enable
    if offload and "offload" not in signature(enable).parameters:
        raise UserError(
            f"execution.offload_activations: transformers {transformers.__version__} cannot; run `pip install -U transformers`"
        )
    enable(arguments, **({"offload": True} if offload else {}))


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
        """Compiled parts stay compiled under this mode."""
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


def _is_kept(operation: Any, arguments: Sequence[Any], *, projections: bool) -> bool:
    """Attention; with `projections` also products whose output is no wider than their input: not the MLP's first ones."""
    if projections and operation in _PRODUCTS:
        rows, matrix = arguments[-2:]
        return bool(matrix.shape[1] <= rows.shape[1])
    return operation in _ATTENTION


def attention_kernels() -> AbstractContextManager[Any]:
    """The fastest attention that torch has for the present device: cuDNN's on Hopper, elsewhere torch's own choice."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < HOPPER:
        return nullcontext()
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order, set_priority=True)


@contextmanager
def fast_kernels(model: nn.Module, execution: Execution) -> Iterator[None]:
    """Attention and elementwise parts, or whole layers, of a model as fast as the execution and the device allow."""
    compiled = compiled_layers(model) if execution.compiled else nullcontext()
    with attention_kernels(), fused_elementwise(model) if execution.fused else compiled:
        yield


@contextmanager
def compiled_layers(model: nn.Module) -> Iterator[None]:
    """Run each of a model's layers as one compiled function, forward and backward: other values, by rounding.

    What that gives a Llama of 104 M parameters is measured by benchmarks/small_model.py.
    """
    layers = [layer for part in model.modules() if isinstance(part, nn.ModuleList) for layer in part]
    try:
        for layer in layers:
            layer.compile(dynamic=False)
        with _fused_heads(model):
            yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None


# --- Elementwise parts of a Llama layer as one kernel each ---
# Their time is memory traffic: eager torch reads and writes the same tensors several times over. Only these small pure
# functions are compiled, so that ZeRO-3 can gather and free the parameters of each module as it does in eager code.


@contextmanager
def fused_elementwise(model: nn.Module) -> Iterator[None]:
    """Run what a model has of RMSNorm, gated MLP (SiLU), rotary embedding and NLL of logits compiled: other values, by rounding."""
    room: Any = sys.modules[type(model).__module__]
    rotary = getattr(room, "apply_rotary_pos_emb", None)
    changed = [(module, forward) for module in model.modules() if (forward := _fused_forward(module)) is not None]
    try:
        for module, forward in changed:
            module.forward = MethodType(forward, module)  # type: ignore[method-assign]
        if rotary is not None:
            room.apply_rotary_pos_emb = torch.compile(rotary, dynamic=False)
        with _fused_heads(model):
            yield
    finally:
        for module, _ in changed:
            del module.forward
        if rotary is not None:
            room.apply_rotary_pos_emb = rotary


@contextmanager
def _fused_heads(model: nn.Module) -> Iterator[None]:
    heads = [module for module in model.modules() if isinstance(module, TokenNLLHead)]
    try:
        for head in heads:
            head.fused = True
        yield
    finally:
        for head in heads:
            head.fused = False


def _fused_forward(module: nn.Module) -> Callable[..., Tensor] | None:
    if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
        return _rms_norm_forward
    projections = ("gate_proj", "up_proj", "down_proj")
    activation = type(getattr(module, "act_fn", None)).__name__
    if all(hasattr(module, name) for name in projections) and activation in ("SiLU", "SiLUActivation"):
        return _gated_mlp_forward
    return None


def _rms_norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    normalised: Tensor = compiled(_rms_norm, dynamic=False)(hidden_states, self.weight, self.variance_epsilon)
    return normalised


def _gated_mlp_forward(self: Any, x: Tensor) -> Tensor:
    output: Tensor = self.down_proj(compiled(_silu_product, dynamic=False)(self.gate_proj(x), self.up_proj(x)))
    return output


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * normalised.to(x.dtype)


def _silu_product(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up
