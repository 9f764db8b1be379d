"""Elementwise parts of a Llama layer as one kernel each: normalisation, gated activation, rotary embedding.

Their time is memory traffic: eager torch reads and writes the same tensors several times over. Only these small pure
functions are compiled, so that ZeRO-3 can gather and free the parameters of each module as it does in eager code.
Measured in ZeRO-3 on two H200, Llama-3 8B shapes, 32k tokens (benchmarks/zero3.py): 0.90 of the time of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def fused_elementwise(model: nn.Module) -> Iterator[list[str]]:
    """Run what a model has of RMSNorm, gated MLP (SiLU) and rotary embedding compiled; gives the names of these.

    Everything is as it was afterwards. Values change by the rounding that fused kernels leave out.
    """
    room: Any = sys.modules[type(model).__module__]
    rotary = getattr(room, "apply_rotary_pos_emb", None)
    changed = [(module, forward) for module in model.modules() if (forward := _fused_forward(module)) is not None]
    names = sorted({forward.__name__.strip("_").removesuffix("_forward") for _, forward in changed})
    try:
        for module, forward in changed:
            module.forward = MethodType(forward, module)  # type: ignore[method-assign]
        if rotary is not None:
            room.apply_rotary_pos_emb = torch.compile(rotary, dynamic=False)
            names.append("rotary")
        yield names
    finally:
        for module, _ in changed:
            del module.forward
        if rotary is not None:
            room.apply_rotary_pos_emb = rotary


def _fused_forward(module: nn.Module) -> Callable[..., Tensor] | None:
    if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
        return _rms_norm_forward
    projections = ("gate_proj", "up_proj", "down_proj")
    activation = type(getattr(module, "act_fn", None)).__name__
    if all(hasattr(module, name) for name in projections) and activation in ("SiLU", "SiLUActivation"):
        return _gated_mlp_forward
    return None


def _rms_norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    return _compiled(_rms_norm)(hidden_states, self.weight, self.variance_epsilon)


def _gated_mlp_forward(self: Any, x: Tensor) -> Tensor:
    output: Tensor = self.down_proj(_compiled(_silu_product)(self.gate_proj(x), self.up_proj(x)))
    return output


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The compiler's import alone takes seconds: for those who ask for it."""
    return torch.compile(function, dynamic=False)


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * normalised.to(x.dtype)


def _silu_product(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up
