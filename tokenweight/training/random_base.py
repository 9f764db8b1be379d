"""Random weights in a real configuration (stage `initialize`): a base for benchmarks, without weight files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.errors import UserError
from tokenweight.recipes.schema import RandomBase


def config_values(base: RandomBase) -> dict[str, Any]:
    """The configuration that a base asks for, as config.json has it: with its layers and its context. Loads no torch.

    Raises UserError where there is no such configuration.
    """
    path = shipped_config(base.config) if base.config in SHIPPED_CONFIGS else Path(base.config)
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict) or "model_type" not in values:
        raise UserError(
            f"base.config {base.config}: neither one of {', '.join(SHIPPED_CONFIGS)} nor a config.json of transformers"
        )
    layers = {} if base.layers is None else {"num_hidden_layers": base.layers}
    return {**values, **layers, "max_position_embeddings": base.context_tokens}


def initialize(values: dict[str, Any], seed: int, tokenizer_dir: Path, out_dir: Path) -> dict[str, Any]:
    """Write out_dir/model: configuration, tokenizer and the seed of the weights; returns the number of parameters.

    Raises UserError for a configuration that transformers cannot build and for a tokenizer that it has no room for.
    """
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    from tokenweight.training.models import load_tokenizer, write_random_base

    tokenizer = load_tokenizer(tokenizer_dir)
    try:
        config = AutoConfig.for_model(**values)
        with torch.device("meta"):  # nothing is held
            parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"base.config: no causal language model can be built of it ({reason})") from error
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"base.tokenizer: has {len(tokenizer)} tokens, base.config room for {config.vocab_size}; give another"
        )
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, name, getattr(tokenizer, name))
    shutil.rmtree(out_dir / "model", ignore_errors=True)
    write_random_base(config, tokenizer_dir, out_dir / "model", seed)
    return {"parameters": int(parameters)}
