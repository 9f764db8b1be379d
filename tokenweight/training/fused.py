"""Elementwise parts of a Llama layer as one kernel each: normalisation, gated activation, rotary embedding.

Their time is memory traffic: eager torch reads and writes the same tensors several times over. Only these small pure
functions are compiled, so that ZeRO-3 can gather and free the parameters of each module as it does in eager code.
"""

from __future__ import annotations

import sys
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn


def fuse_elementwise(model: nn.Module) -> list[str]:
    """Compile what a model has of RMSNorm, gated MLP (SiLU) and rotary embedding; says what was fused."""
    fused = set()
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = MethodType(_rms_norm_forward, module)  # type: ignore[method-assign]
            fused.add("rms_norm")
        elif _is_gated_mlp(module):
            module.forward = MethodType(_gated_mlp_forward, module)  # type: ignore[method-assign]
            fused.add("gated_mlp")
    if fused and _fuse_rotary(model):
        fused.add("rotary")
    return sorted(fused)


def _is_gated_mlp(module: nn.Module) -> bool:
    projections = ("gate_proj", "up_proj", "down_proj")
    activation = type(getattr(module, "act_fn", None)).__name__
    return all(hasattr(module, name) for name in projections) and activation in ("SiLU", "SiLUActivation")


def _fuse_rotary(model: nn.Module) -> bool:
    room: Any = sys.modules[type(model).__module__]
    rotary = getattr(room, "apply_rotary_pos_emb", None)
    if rotary is None:
        return False
    if not hasattr(rotary, "_torchdynamo_orig_callable"):
        room.apply_rotary_pos_emb = torch.compile(rotary, dynamic=False)
    return True


def _rms_norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    return _rms_norm(hidden_states, self.weight, self.variance_epsilon)


def _gated_mlp_forward(self: Any, x: Tensor) -> Tensor:
    output: Tensor = self.down_proj(_silu_product(self.gate_proj(x), self.up_proj(x)))
    return output


@torch.compile(dynamic=False)
def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * normalised.to(x.dtype)


@torch.compile(dynamic=False)
def _silu_product(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up
