"""Context extension (Section 4, Models): the same weights under a configuration with another RoPE. Loads no torch."""

from __future__ import annotations

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
        extend(inputs["model"].path, self.extension, out_dir)
        return {}


def extend(model_dir: Path, extension: Extension, out_dir: Path) -> None:
    """Write out_dir/model: the checkpoint of `model_dir`, its RoPE and context set by `extension`.

    Weights are hard-linked (copied across file systems), tokenizer and other files copied. Raises UserError
    where the directory is no checkpoint, its RoPE cannot be extended so, or long_tokens shortens its context.
    """
    config = load_config(model_dir)
    window, layers = getattr(config, "sliding_window", None), getattr(config, "layer_types", None) or ()
    if window and window < extension.long_tokens and "full_attention" not in layers:
        raise UserError(
            f"extension.long_tokens: every layer of {model_dir} sees the last {window} tokens (sliding_window), fewer than "
            f"{extension.long_tokens}; give a base of full attention, or long_tokens up to {window}"
        )
    config.rope_parameters = extended_rope(config, extension)
    config.max_position_embeddings = extension.long_tokens
    extended = out_dir / "model"
    shutil.rmtree(extended, ignore_errors=True)  # of an attempt that was interrupted
    extended.mkdir(parents=True)
    if not hasattr(config, RANDOM_SEED):  # a base of random weights has no files of them
        link_weights(model_dir, extended)
    copy_companions(model_dir, extended)
    save_config(config, extended)


def extended_rope(config: Any, extension: Extension) -> dict[str, Any]:
    """The rope_parameters of the extended model; other entries (Phi-2's partial_rotary_factor) stay.

    abf sets theta itself. With f = long_tokens / present context: ntk sets theta * f^(d / (d - 2)), d the rotary
    dimension (2.0M for Llama-3 and 192k for Phi-2; the paper's "NTK-predicted" 3.5M and 1.3M do not follow from
    it); linear divides positions by f; yarn is transformers' YaRN with factor f.
    """
    present = dict(config.rope_parameters)
    factor = extension.long_tokens / config.max_position_embeddings
    if factor < 1:
        raise UserError(
            f"extension.long_tokens: {extension.long_tokens} is less than the base's context "
            f"({config.max_position_embeddings}); raise it or leave the extension out"
        )
    if extension.method == "abf":
        if extension.rope_theta is not None and extension.rope_theta < present["rope_theta"]:
            raise UserError(
                f"extension.rope_theta: {extension.rope_theta:,.0f} is less than the base's {present['rope_theta']:,.0f}, which "
                "would shorten its context; set it to what this base needs"
            )
        return {**present, "rope_theta": extension.rope_theta}
    if present["rope_type"] != "default":
        raise UserError(
            f"extension.method: {extension.method!r} needs a base with plain RoPE, this one has "
            f"{present['rope_type']!r}; use 'abf'"
        )
    if extension.method == "ntk":
        from tokenweight.context.rope import rotary_dimension

        dimension = rotary_dimension(config)
        return {**present, "rope_theta": present["rope_theta"] * factor ** (dimension / (dimension - 2))}
    scaled = {**present, "rope_type": extension.method, "factor": factor}
    if extension.method == "yarn":
        scaled["original_max_position_embeddings"] = config.max_position_embeddings
    return scaled


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
