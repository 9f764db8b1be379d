"""Loading a checkpoint for training or scoring: right precision, no dropout, our head, the RoPE that it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tokenweight.context.extend import load_config
from tokenweight.context.rope import assert_rope
from tokenweight.training.quiet import quiet_transformers
from tokenweight.weighting.head import Rounding, install_head


def load_model(
    model_dir: Path,
    dtype: torch.dtype,
    *,
    config: Any = None,
    rounding: Rounding = "none",
    check_rope: bool = True,
) -> Any:
    """A causal language model with a TokenNLLHead and its parameters in `dtype`.

    Dropout is 0 whatever the configuration says (Phi-2 has 0.1): with it, identical contexts would give
    different NLLs, and so scores that mean nothing. `config` takes the place of the directory's own; `rounding` is the
    head's. `check_rope` False where an engine will still round it.
    """
    from transformers import AutoModelForCausalLM

    config = load_config(model_dir) if config is None else config
    without_dropout(config)
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(
            model_dir, config=config, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    install_head(model, rounding)
    if check_rope:
        assert_rope(model, config)
    return model


def without_dropout(config: Any) -> None:
    """Set every dropout probability of a configuration to 0."""
    for name, value in config.to_dict().items():
        if isinstance(value, float) and name.endswith(("dropout", "pdrop")):
            setattr(config, name, 0.0)


def resolve_device(device: str, local_rank: int = 0) -> torch.device:
    """The device of one process: `auto` takes a GPU where there is one."""
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
