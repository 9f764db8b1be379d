"""Rotary frequencies: what a configuration says they are, and whether a model really has them."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tokenweight.errors import StageError


def expected_inv_freq(config: Any) -> Tensor:
    """Inverse frequencies that the configuration asks for: fp32 [rotary dimension / 2].

    theta^(-2i/d) with d the dimensions of a head that are rotated (Phi-2: 0.4 of 80); scaled types as transformers does.
    """
    parameters = config.rope_parameters
    if parameters["rope_type"] != "default":
        scaled: Tensor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device=torch.device("cpu"))[0]
        return scaled
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dimension = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    inv_freq: Tensor = parameters["rope_theta"] ** -(torch.arange(0, dimension, 2, dtype=torch.float64) / dimension)
    return inv_freq.float()


def assert_rope(model: nn.Module, config: Any) -> None:
    """Raise StageError unless every rotary embedding of `model` holds, in fp32, the frequencies of `config`.

    Edits of a built model's configuration do nothing, and casting or sharding a model in bf16 has rounded its
    frequencies before (by tens of radians at position 32k): call this after loading, sharding and saving.
    """
    expected = expected_inv_freq(config)
    found = _rotary_buffers(model)
    if not found:
        raise StageError("the model has no rotary embedding (no inv_freq buffer): RoPE extension cannot apply to it")
    for name, buffer in found.items():
        if buffer.dtype != torch.float32:
            raise StageError(f"{name} is {buffer.dtype}, not float32: the rotary frequencies are rounded")
        if buffer.shape != expected.shape or not torch.allclose(buffer.cpu(), expected, rtol=1e-5, atol=0):
            raise StageError(f"{name} differs from the frequencies of the configuration {config.rope_parameters}")


def restore_rope(model: nn.Module, config: Any) -> None:
    """Put the frequencies of `config` back, in fp32, where an engine has rounded them (DeepSpeed does)."""
    expected = expected_inv_freq(config)
    for name, buffer in _rotary_buffers(model).items():
        if buffer.dtype != torch.float32:
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, expected.to(buffer.device))


def _rotary_buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
