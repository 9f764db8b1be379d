"""The paper's models as shapes: real configurations with random weights, at any depth. Run time does not see values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch

from tokenweight.assets import shipped_config
from tokenweight.training.flops import train_flops


@dataclass(frozen=True)
class Shape:
    """A model of the paper, its extended context and RoPE, and its windows (Section 4)."""

    name: str
    layers: int
    long_tokens: int
    short_tokens: int
    stride_tokens: int
    config: dict[str, Any]

    def make_config(self, layers: int) -> Any:
        """Its transformers configuration with `layers` layers."""
        from transformers import AutoConfig

        changes = {"num_hidden_layers": layers, "max_position_embeddings": self.long_tokens, "use_cache": False}
        return AutoConfig.for_model(**{**self.config, **changes})

    def build(self, layers: int, device: str) -> Any:
        """The model in bf16 with `layers` layers and random weights."""
        from transformers import AutoModelForCausalLM

        with torch.device(device):
            return AutoModelForCausalLM.from_config(
                self.make_config(layers), dtype=torch.bfloat16, attn_implementation="sdpa"
            )


def _shape(name: str, rope_theta: float, short_tokens: int, stride_tokens: int) -> Shape:
    config = json.loads(shipped_config(name).read_text())
    kept = {key: value for key, value in config["rope_parameters"].items() if key == "partial_rotary_factor"}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": rope_theta, **kept}
    config |= {key: 0.0 for key in config if key.endswith(("dropout", "pdrop"))}
    return Shape(name, config["num_hidden_layers"], 32_768, short_tokens, stride_tokens, config)


SHAPES = {
    shape.name: shape
    for shape in (
        _shape("llama3-8b", 15_300_000.0, 8192, 6144),
        _shape("llama3.2-1b", 15_300_000.0, 8192, 6144),
        _shape("phi-2", 500_000.0, 2048, 1920),
    )
}


def step_flops(shape: Shape, layers: int, tokens: int) -> float:
    """Model FLOPs of one training step on one sequence, as tokenweight.training.flops counts them."""
    flops = train_flops(shape.make_config(layers), tokens)
    assert flops is not None, f"{shape.name}: a family that flops.py does not know"
    return flops


def tiny(shape: Shape) -> Shape:
    """The same shape small enough for a CPU, to try a benchmark's logic."""
    small = {"vocab_size": 4096, "hidden_size": 64, "intermediate_size": 128}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = {key: value for key, value in shape.config.items() if key != "head_dim"} | small
    return Shape(shape.name, shape.layers, 256, 64, 48, config)
