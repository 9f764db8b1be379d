"""Model FLOPs of training and what devices can do: the two halves of model FLOP utilisation (MFU).

MFU as Chowdhery et al. (2022, PaLM, Appendix B) define it: the FLOPs that the model's matrix products need, over
what the devices could do in the same time. A multiply-add is two FLOPs; backward costs twice forward; recomputation
and a scoring pass are not counted; causal attention is counted half, for half of its products are masked.
"""

from typing import Any, NamedTuple

# Dense bf16, FLOP/s, from NVIDIA's data sheets (A100, H100 SXM, H200 SXM); the PCIe H100 is slower.
PEAK_FLOPS = {"A100": 312e12, "H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12}

MLP_MATRICES = {"llama": 3, "phi": 2}  # gate, up, down; up, down


class ForwardFlops(NamedTuple):
    """FLOPs of one forward pass: of all layers (their products, and the causal half of attention), and of the head."""

    layers: float
    head: float


def forward_flops(config: Any, tokens: int) -> ForwardFlops | None:
    """FLOPs of a forward pass; `config` has the fields of a transformers configuration. None for an unknown family."""
    if config.model_type not in MLP_MATRICES:
        return None
    width, layers = config.hidden_size, config.num_hidden_layers
    query_width, key_width = attention_widths(config)
    projections = 2.0 * tokens * layers * (2 * width * query_width + 2 * width * key_width)
    mlp = 2.0 * tokens * layers * MLP_MATRICES[config.model_type] * width * config.intermediate_size
    attention = layers * 2.0 * tokens * tokens * query_width
    return ForwardFlops(projections + mlp + attention, 2.0 * tokens * width * config.vocab_size)


def attention_widths(config: Any) -> tuple[int, int]:
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_attention_heads * head_width, config.num_key_value_heads * head_width


def train_flops(config: Any, tokens: int) -> float | None:
    """FLOPs of forward and backward on one sequence of `tokens` tokens, as :func:`forward_flops`."""
    forward = forward_flops(config, tokens)
    return 3 * sum(forward) if forward else None


def peak_flops(device_name: str) -> float | None:
    """Dense bf16 FLOP/s of a device by its name; None for one that is not known here."""
    return next((flops for name, flops in PEAK_FLOPS.items() if name in device_name), None)
