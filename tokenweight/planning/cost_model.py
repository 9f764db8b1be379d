"""How long a GPU computes and how much it holds, from FLOPs and sizes: docs/plan.md. Fitted to benchmarks/results.

Seconds = FLOPs that the device does, recomputation included, over (its peak times an efficiency). One efficiency for each
device and model family, the same for training and for scoring. tests/planning/test_cost_model.py holds it against
every measurement.
"""

from __future__ import annotations

from typing import Any

from tokenweight.recipes.schema import Checkpointing, Execution, Scorer, Weighting
from tokenweight.training.flops import MLP_MATRICES, PEAK_FLOPS, ForwardFlops, attention_widths, forward_flops

GPUS = ("H200", "A100")

# Share of the peak. H200: benchmarks/results, Llama-3 8B and Phi-2 at 32k tokens. A100: what Appendix B's 30 hours for
# the uniform Llama-3 8B imply where all activations but each layer's input are computed again.
EFFICIENCY: dict[str, dict[str, float]] = {
    "H200": {"llama": 0.51, "phi": 0.37},
    "A100": {"llama": 0.338, "phi": 0.338},
}
LEAST_PARAMETERS = 1e9  # of models that were timed; smaller ones do not fill a GPU

# ZeRO-3, bytes a parameter, shared by all processes: bf16 weights, fp32 master weights, gradients and two moments.
_STATE_BYTES = 2 + 4 + 4 + 8
# Fitted to the peaks of Llama-3 8B on two H200: gathered parameters and buffers, and the working set of one layer and
# the head in bytes for each token and each element of the model's and the MLP's width.
_FIXED_BYTES = 5.8 * 2**30
_WORKING_BYTES = 12.2


def training_flops(
    config: Any, tokens: int, weighting: Weighting, scorer: Scorer | None, checkpointing: Checkpointing
) -> tuple[float, float] | None:
    """FLOPs of one training sequence: of the model, without recomputation; and those that the GPU does.

    The first counts forward, twice that backward, and an unfrozen scorer's pass; the second adds what is computed again,
    and leaves out rows of weight 0 in the head's backward pass. None for an unknown model family.
    """
    forward = forward_flops(config, tokens)
    if forward is None:
        return None
    scoring = 0.0
    if scorer and scorer.kind == "unfrozen":
        scoring = scoring_flops(config, tokens, scorer, first_window=False) or 0.0
    kept = weighting.kappa if weighting.postprocessing == "sparse" and weighting.kappa else 1.0
    done = 3 * forward.layers + _recomputed(forward, config, checkpointing) + (1 + 3 * kept) * forward.head
    return 3 * (forward.layers + forward.head) + scoring, done + scoring


def scoring_flops(config: Any, tokens: int, scorer: Scorer, *, first_window: bool = True) -> float | None:
    """FLOPs of the windows of one sequence of `tokens`; the head reads the scored positions only.

    An unfrozen scorer takes the first window from the long pass. None for an unknown model family.
    """
    window = forward_flops(config, scorer.short_tokens)
    positions = forward_flops(config, tokens - 1 if first_window else tokens - scorer.short_tokens)
    if window is None or positions is None:
        return None
    later = -(-(tokens - scorer.short_tokens) // scorer.stride_tokens)
    return (later + first_window) * window.layers + positions.head


def _recomputed(forward: ForwardFlops, config: Any, checkpointing: Checkpointing) -> float:
    """What backward computes again in the layers; the MLP's last product never (tokenweight.training.activations)."""
    matrices = MLP_MATRICES[config.model_type]
    mlp = forward.mlp * (matrices - 1) / matrices
    return {
        "none": 0.0,
        "keep_projections": mlp,
        "keep_attention": mlp + forward.projections,
        "full": mlp + forward.projections + forward.attention,
    }[checkpointing]


def gpu_hours(flops: float, config: Any, parameters: int) -> dict[str, float]:
    """GPU-hours by GPU for FLOPs that are done; empty for models that are smaller than any that was timed."""
    if parameters < LEAST_PARAMETERS:
        return {}
    return {gpu: flops / (PEAK_FLOPS[gpu] * EFFICIENCY[gpu][config.model_type]) / 3600 for gpu in GPUS}


def training_memory(config: Any, parameters: int, tokens: int, execution: Execution) -> float | None:
    """Peak bytes on each GPU while it trains on sequences of `tokens`; None where no such run was measured.

    ZeRO-3 with recomputation alone: parameters, gradients, optimizer, activations kept and the working set of a layer.
    """
    if execution.deepspeed_stage != 3 or execution.checkpointing == "none" or parameters < LEAST_PARAMETERS:
        return None
    here = tokens * execution.micro_batch_sequences / execution.sequence_parallel
    width, (query, key) = config.hidden_size, attention_widths(config)
    kept = {
        "full": width,
        "keep_attention": width + query,
        "keep_projections": width + query + (query + 2 * key + width),
    }[execution.checkpointing]
    states = _STATE_BYTES * parameters / execution.processes
    activations = 2 * kept * config.num_hidden_layers * here
    working_set = _WORKING_BYTES * (width + config.intermediate_size) * here
    return float(states + activations + working_set + _FIXED_BYTES)
