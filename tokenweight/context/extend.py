"""Context extension (Section 4, Models): the same weights under a configuration with another RoPE. Loads no torch."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.context.checkpoint_files import RANDOM_SEED, copy_companions, copy_weights, save_config
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
    """Write out_dir/model: a copy of the checkpoint with the RoPE theta (ABF) and the context of `extension`.

    UserError: `model_dir` is no checkpoint with RoPE, or as of :func:`check_extension`.
    """
    config = load_config(model_dir)
    check_extension(config, extension)
    config.rope_parameters = {**config.rope_parameters, "rope_theta": extension.rope_theta}  # Phi-2's share stays
    config.max_position_embeddings = extension.long_tokens
    extended = out_dir / "model"
    shutil.rmtree(extended, ignore_errors=True)  # of an attempt that was interrupted
    extended.mkdir(parents=True)
    if not hasattr(config, RANDOM_SEED):  # a base of random weights has no files of them
        copy_weights(model_dir, extended)
    copy_companions(model_dir, extended)
    save_config(config, extended)


def check_sight(config: Any, tokens: int, setting: str, model: str = "the base") -> None:
    """UserError where no layer of a model sees `tokens` back: NLLs given them would be those of its window, and noise."""
    window, layers = getattr(config, "sliding_window", None) or 0, getattr(config, "layer_types", None) or ()
    slides = getattr(config, "use_sliding_window", True) and "full_attention" not in layers
    if slides and 0 < window < tokens:
        raise UserError(
            f"{setting}: every layer of {model} sees the last {window} tokens (sliding_window), fewer than {tokens}; give a model "
            f"of full attention, or at most {window}"
        )


def check_extension(config: Any, extension: Extension) -> None:
    """UserError where the extension would shorten a base's context; `config` has the fields of its config.json, or is None."""
    check_sight(config, extension.long_tokens, "extension.long_tokens")
    context_tokens = getattr(config, "max_position_embeddings", 0)
    theta = (getattr(config, "rope_parameters", None) or vars(config or extension)).get("rope_theta") or 0.0
    if extension.long_tokens < context_tokens:
        raise UserError(
            f"extension.long_tokens: {extension.long_tokens} is less than the base's context ({context_tokens}); "
            "raise it, or leave the extension out"
        )
    if extension.rope_theta < theta:
        raise UserError(
            f"extension.rope_theta: {extension.rope_theta:,.0f} is less than the base's {theta:,.0f}, which would shorten "
            "its context; set it to what this base needs"
        )


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
        raise UserError(f"{model_dir}/config.json: the model has no RoPE, or several; use a model with one")
    return config
