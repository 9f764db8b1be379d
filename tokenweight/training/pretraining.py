"""Pre-training of a base by the pipeline itself (stage `pretrain`): a small Llama from random weights, uniform loss."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from tokenweight.context.checkpoint_files import copy_tokenizer
from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Input, Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import PHI_ROTATED_SHARE, Execution
from tokenweight.training.models import load_tokenizer
from tokenweight.training.quiet import quiet_transformers
from tokenweight.training.run import train
from tokenweight.training.sequences import open_tokens
from tokenweight.training.stages import Pretrain, Train


def pretrain(
    stage: Pretrain, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress
) -> dict[str, Any]:
    """Train `stage.architecture` on the sequences of a chunk artifact (stage.context_tokens long); leaves out_dir/model.

    The corpus is read again from its beginning where stage.training asks for more sequences than it has. Resumes
    as :func:`tokenweight.training.run.train` does. Returns its summary with the number of parameters.
    """
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
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(stage.seed)
        model = AutoModelForCausalLM.from_config(config)
        model.save_pretrained(partial)
    copy_tokenizer(tokenizer_dir, partial)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(partial, target)
    return int(model.num_parameters())
