"""The paper's models as shapes: real configurations with random weights, at any depth. Run time does not see values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tokenweight.training.flops import train_flops


@dataclass(frozen=True)
class Shape:
    """A model of the paper and its windows (Section 4)."""

    name: str
    layers: int
    long_tokens: int
    short_tokens: int
    stride_tokens: int
    config: dict[str, Any]

    def make_config(self, layers: int) -> Any:
        """Its transformers configuration with `layers` layers."""
        import transformers

        family = transformers.PhiConfig if self.name.startswith("phi") else transformers.LlamaConfig
        return family(
            **self.config, num_hidden_layers=layers, max_position_embeddings=self.long_tokens, use_cache=False
        )

    def build(self, layers: int, device: str) -> Any:
        """The model in bf16 with `layers` layers and random weights."""
        from transformers import AutoModelForCausalLM

        with torch.device(device):
            return AutoModelForCausalLM.from_config(
                self.make_config(layers), dtype=torch.bfloat16, attn_implementation="sdpa"
            )


_LLAMA3 = {
    "vocab_size": 128_256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 15_300_000.0},
    "num_key_value_heads": 8,
    "num_attention_heads": 32,
}
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "llama3-8b", 32, 32_768, 8192, 6144,
            {**_LLAMA3, "hidden_size": 4096, "intermediate_size": 14_336, "tie_word_embeddings": False},
        ),
        Shape(
            "llama3.2-1b", 16, 32_768, 8192, 6144,
            {**_LLAMA3, "hidden_size": 2048, "intermediate_size": 8192, "tie_word_embeddings": True, "head_dim": 64},
        ),
        Shape(
            "phi-2", 32, 32_768, 2048, 1920,
            {
                "vocab_size": 51_200, "hidden_size": 2560, "intermediate_size": 10_240, "num_attention_heads": 32,
                "num_key_value_heads": 32, "attention_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.4},
                "tie_word_embeddings": False,
            },
        ),
    )
}  # fmt: skip


def step_flops(shape: Shape, layers: int, tokens: int) -> float:
    """Model FLOPs of one training step on one sequence, as tokenweight.training.flops counts them."""
    flops = train_flops(shape.make_config(layers), tokens)
    assert flops is not None, f"{shape.name}: a family that flops.py does not know"
    return flops


def tiny(shape: Shape) -> Shape:
    """The same shape small enough for a CPU, to try a benchmark's logic."""
    small = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = {key: value for key, value in shape.config.items() if key != "head_dim"} | small
    return Shape(shape.name, shape.layers, 256, 64, 48, config)
