"""Bases that are made here: random weights in a real configuration, or pre-trained by the pipeline (a small model)."""

import shutil
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM

from tokenweight.context.checkpoint_files import RANDOM_SEED, copy_tokenizer, save_config
from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.models import load_tokenizer
from tokenweight.training.run import train
from tokenweight.training.sequences import open_tokens
from tokenweight.training.stages import Initialize, Pretrain, Train, architecture_values


def initialize(
    stage: Initialize, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress
) -> dict[str, Any]:
    """Write out_dir/model by :func:`write_random_base`; returns the number of parameters."""
    return {"parameters": write_random_base(stage.config, stage.seed, inputs["tokenizer"], out_dir / "model")}


def write_random_base(
    values: dict[str, Any], seed: int, tokenizer_dir: Path, target: Path, *, with_weights: bool = False
) -> int:
    """Write configuration, tokenizer and a seed: the weights are drawn where the base is loaded, or here, `with_weights`.

    `values` are those of a config.json. Returns the number of parameters. Raises UserError where they do not fit.
    """
    tokenizer = load_tokenizer(tokenizer_dir)
    try:
        config = AutoConfig.for_model(**values)
        with torch.device("meta"):  # nothing is held
            parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"base.config: no causal language model can be built from it ({reason})") from error
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"base.tokenizer: has {len(tokenizer)} tokens, base.config has embeddings for {config.vocab_size}; give another"
        )
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, name, getattr(tokenizer, name))
    shutil.rmtree(target, ignore_errors=True)  # of an attempt that was interrupted
    target.mkdir(parents=True)
    if with_weights:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            AutoModelForCausalLM.from_config(config).save_pretrained(target)
    else:
        setattr(config, RANDOM_SEED, seed)
    save_config(config, target)
    copy_tokenizer(tokenizer_dir, target)
    return int(parameters)


class _Pretraining(Train):
    repeats = True


def pretrain(
    stage: Pretrain, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress
) -> dict[str, Any]:
    """Train `stage.architecture` on the sequences of a chunk artifact as :func:`tokenweight.training.run.train` does.

    The corpus is read again from its beginning where stage.training asks for more sequences than it has.
    """
    initial = out_dir / "initial"
    values = architecture_values(stage, len(load_tokenizer(inputs["tokenizer"])))
    parameters = write_random_base(values, stage.seed, inputs["tokenizer"], initial, with_weights=True)
    as_train = _Pretraining(training=stage.training, seed=stage.seed)
    summary = train(as_train, {**inputs, "model": initial}, out_dir, execution, progress)
    shutil.rmtree(initial)
    return {**summary, "parameters": parameters, "passes": as_train.sequences / len(open_tokens(inputs["chunks"]))}
