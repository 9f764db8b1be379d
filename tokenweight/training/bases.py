"""Bases that are made here: pre-trained by the pipeline (a small model), or random weights in a real configuration.

Loads torch where they are made.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.context.checkpoint_files import copy_tokenizer, save_config
from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Input, Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import PHI_ROTATED_SHARE, Execution, RandomBase
from tokenweight.training.quiet import quiet_transformers
from tokenweight.training.stages import Pretrain, Train


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


def pretrain(
    stage: Pretrain, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress
) -> dict[str, Any]:
    """Train `stage.architecture` on the sequences of a chunk artifact (stage.context_tokens long); leaves out_dir/model.

    The corpus is read again from its beginning where stage.training asks for more sequences than it has. Resumes
    as :func:`tokenweight.training.run.train` does. Returns its summary with the number of parameters.
    """
    from tokenweight.training.run import train
    from tokenweight.training.sequences import open_tokens

    chunk_dir = inputs["chunks"].path
    tokens = open_tokens(chunk_dir)
    if tokens.shape[1] != stage.context_tokens:
        raise UserError(
            f"{chunk_dir}: sequences of {tokens.shape[1]} tokens, base.context_tokens is {stage.context_tokens}; "
            "make them equal"
        )
    initial = out_dir / "initial"
    parameters = initial_checkpoint(stage, inputs["tokenizer"].path, initial)
    as_train = Train(training=stage.training, seed=stage.seed)
    read = {"model": Input(initial, "initial"), "chunks": inputs["chunks"]}
    summary = train(as_train, read, out_dir, execution, progress, repeat_sequences=True)
    shutil.rmtree(initial)
    return {**summary, "parameters": parameters, "passes": as_train.sequences / len(tokens)}


def initial_checkpoint(stage: Pretrain, tokenizer_dir: Path, target: Path) -> int:
    """Write the randomly initialised model (seed stage.seed) and its tokenizer; returns its number of parameters.

    A Phi rotates a part of each head, as Phi-2 does.
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, PhiConfig

    from tokenweight.training.models import load_tokenizer

    tokenizer, shape = load_tokenizer(tokenizer_dir), stage.architecture
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.family == "phi":
        rope["partial_rotary_factor"] = PHI_ROTATED_SHARE
    config = {"llama": LlamaConfig, "phi": PhiConfig}[shape.family](
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=stage.context_tokens,
        rope_parameters=rope,
        tie_word_embeddings=shape.tie_embeddings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    shutil.rmtree(target, ignore_errors=True)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(stage.seed)
        model = AutoModelForCausalLM.from_config(config)
        model.save_pretrained(target)
    save_config(model.config, target)
    copy_tokenizer(tokenizer_dir, target)
    return int(model.num_parameters())
