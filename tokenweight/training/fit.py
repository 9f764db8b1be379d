"""Whether a checkpoint's files are the model that its config.json describes, by their headers alone: the one place that says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig
from transformers.integrations import deepspeed
from transformers.modeling_utils import load_state_dict

from tokenweight.context.checkpoint_files import WEIGHTS, read_object
from tokenweight.errors import UserError

_OBJECTS = ("config.json", "generation_config.json", "tokenizer_config.json")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def check_weights(model_dir: Path, name: str, config: Any = None) -> None:
    """Refuse a directory whose files are not those of the model in its config.json (or in `config`).

    No weight is read: values are seen where they are loaded. UserError, of the model called `name`: an adapter, quantised
    weights, a damaged file or one that is more than tensors, a shard that the index names and that is not there or lacks its
    tensors; tensors that the model lacks, has in another shape, or does not know.
    """
    if (model_dir / "adapter_config.json").exists():
        raise UserError(f"{name}: is an adapter; merge it into its base first and give the merged checkpoint")
    small = {name: read_object(model_dir / name) for name in _OBJECTS if (model_dir / name).exists()}
    if small.get("config.json", {}).get("quantization_config"):
        raise UserError(
            f"{name}: config.json says that its weights are quantised; give the checkpoint of full precision"
        )
    held = _headers(model_dir, name)
    try:
        with _in_one_piece():
            config = config or AutoConfig.from_pretrained(model_dir, local_files_only=True)
            config._attn_implementation = None  # sdpa where the model has it, whatever attention config.json names
            made: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            # transformers' own loading, whose every name of old and fused tensors it knows, of no values into no memory
            _, found = made.from_pretrained(
                None, config=config, state_dict=held, device_map={"": "meta"}, output_loading_info=True,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
    except Exception as error:  # whatever the code of a model raises of a configuration
        raise UserError(
            f"{name}: no model can be made from its config.json ({why(error)}); give a complete checkpoint of transformers"
        ) from error
    wrong = {what: sorted(map(str, found[f"{what}_keys"])) for what in ("missing", "unexpected", "mismatched")}
    if counts := [f"{len(names)} {what} (first {names[0]})" for what, names in wrong.items() if names]:
        raise UserError(
            f"{name}: its weights are not those of the model in config.json: tensors {', '.join(counts)}; "
            "give a complete checkpoint of transformers"
        )


@contextmanager
def _in_one_piece() -> Iterator[None]:
    """Under ZeRO-3 transformers makes models in parts, and says nothing reliable of their tensors: not within this."""
    sharding, deepspeed._hf_deepspeed_config_weak_ref = deepspeed._hf_deepspeed_config_weak_ref, None
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = sharding


def why(error: Exception) -> str:
    """An error of another library in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _headers(model_dir: Path, name: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint by name, on the device meta, from the files that transformers would read."""
    for file in ("model.safetensors", "pytorch_model.bin"):
        index = model_dir / f"{file}.index.json"
        if (model_dir / file).exists():
            return _header(model_dir / file)
        if index.exists():
            return _of_shards(index, name)
    raise UserError(f"{name}: holds no weights ({', '.join(WEIGHTS)}); give a complete checkpoint")


def _of_shards(index: Path, name: str) -> dict[str, torch.Tensor]:
    listed = read_object(index).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(shard, str) for shard in listed.values()):
        raise UserError(f"{index}: lists no tensors; copy it again")
    shards = {shard: index.with_name(shard) for shard in sorted(listed.values())}
    held = {shard: _header(file) if file.is_file() else {} for shard, file in shards.items()}
    if lost := [key for key, shard in listed.items() if key not in held[shard]]:
        raise UserError(
            f"{name}: {len(lost)} of {len(listed)} tensors are not where {index.name} says, first {lost[0]} in "
            f"{listed[lost[0]]}; give all shards"
        )
    return {key: tensor for one in held.values() for key, tensor in one.items()}


def _header(file: Path) -> dict[str, torch.Tensor]:
    try:
        held = dict(load_state_dict(str(file), map_location="meta", weights_only=True))
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: is damaged ({error}); copy it again") from None
    except Exception as error:  # of a pickle that would run code, torch's
        raise UserError(f"{file}: cannot be loaded ({why(error)}); give a checkpoint in safetensors") from None
    for key, tensor in held.items():
        if key.endswith("weight") and getattr(tensor, "dtype", None) not in _FLOATS:
            kind = str(getattr(tensor, "dtype", type(tensor).__name__)).removeprefix("torch.")
            raise UserError(f"{file}: {key} is {kind}: give the checkpoint of full precision")
    return held
