"""Context extension (Section 4, Models): the same weights under a configuration with another RoPE. Loads no torch."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.context.checkpoint_files import RANDOM_SEED, copy_companions, link_weights, save_config
from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Artifact, Inputs, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution, Extension


class Extend(Stage):
    """A model with a longer context by RoPE (Section 4, Models). Input: model."""

    name = "extend"
    folder = "model"
    extension: Extension

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['model'].short_name}-{self.extension.method}-{self.extension.long_tokens}"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        extend(inputs["model"], self.extension, out_dir)
        return {}


def extend(model_dir: Path, extension: Extension, out_dir: Path) -> None:
    """Write out_dir/model: the checkpoint of `model_dir` with the RoPE theta (ABF) and the context of `extension`.

    Weights are hard-linked (copied across file systems), tokenizer and other files copied. Raises UserError
    where the directory is no checkpoint with RoPE, or its context would be shortened.
    """
    config = load_config(model_dir)
    window, layers = getattr(config, "sliding_window", None), getattr(config, "layer_types", None) or ()
    if window and window < extension.long_tokens and "full_attention" not in layers:
        raise UserError(
            f"extension.long_tokens: every layer of {model_dir} sees the last {window} tokens (sliding_window), fewer than "
            f"{extension.long_tokens}; give a base of full attention, or long_tokens up to {window}"
        )
    rope, context_tokens = dict(config.rope_parameters), config.max_position_embeddings
    if extension.long_tokens < context_tokens:
        raise UserError(
            f"extension.long_tokens: {extension.long_tokens} is less than the base's context ({context_tokens}); "
            "raise it or leave the extension out"
        )
    if extension.rope_theta < rope["rope_theta"]:
        raise UserError(
            f"extension.rope_theta: {extension.rope_theta:,.0f} is less than the base's {rope['rope_theta']:,.0f}, which "
            "would shorten its context; set it to what this base needs"
        )
    config.rope_parameters = {**rope, "rope_theta": extension.rope_theta}  # Phi-2's partial_rotary_factor stays
    config.max_position_embeddings = extension.long_tokens
    extended = out_dir / "model"
    shutil.rmtree(extended, ignore_errors=True)  # of an attempt that was interrupted
    extended.mkdir(parents=True)
    if not hasattr(config, RANDOM_SEED):  # a base of random weights has no files of them
        link_weights(model_dir, extended)
    copy_companions(model_dir, extended)
    save_config(config, extended)


def load_config(model_dir: Path) -> Any:
    """The transformers configuration of a checkpoint directory that has RoPE; UserError otherwise."""
    from transformers import AutoConfig

    if not (model_dir / "config.json").is_file():
        raise UserError(f"{model_dir}: no config.json here; give a checkpoint directory")
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{model_dir}/config.json: cannot be read ({error}); give a transformers checkpoint") from error
    if not (getattr(config, "rope_parameters", None) or {}).get("rope_theta"):
        raise UserError(f"{model_dir}/config.json: the model has no single RoPE; use a model with rotary embeddings")
    return config
