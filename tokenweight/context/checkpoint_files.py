"""The files of a checkpoint directory: its weights, and what travels with them."""

import json
import shutil
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.stage import content_digest

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # not training_args.bin, optimizer.bin
RANDOM_SEED = "tokenweight_random_seed"  # in the configuration of a base whose weights are drawn where it is loaded
WRITTEN_ANEW = ("config.json", "record.json")  # ours to write; the store's own

_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "added_tokens.json")


def checkpoint_sha256(model_dir: Path) -> str:
    """SHA-256 of what a checkpoint computes with: weights, config, tokenizer; the same wherever the directory lies."""
    read_with_weights = ("config.json", *_TOKENIZER_FILES)
    files = [file for file in _files(model_dir) if _is_weight(file) or any(map(file.match, read_with_weights))]
    digests = {file.name: file_sha256(file) for file in files}
    return content_digest(digests)


def copy_weights(model_dir: Path, target_dir: Path) -> None:
    """Copies, not links: whoever wrote into one would change the other."""
    files = list(filter(_is_weight, _files(model_dir)))
    if all(file.suffix == ".json" for file in files):
        raise UserError(f"{model_dir}: no weights ({', '.join(WEIGHTS)}) here; give a complete checkpoint")
    for file in files:
        shutil.copyfile(file, target_dir / file.name)


def copy_companions(model_dir: Path, target_dir: Path) -> None:
    """Copy tokenizer, generation settings and other small files of a checkpoint, byte for byte."""
    for file in _files(model_dir):
        if not _is_weight(file) and file.name not in WRITTEN_ANEW:
            shutil.copyfile(file, target_dir / file.name)


def copy_tokenizer(source_dir: Path, target_dir: Path) -> None:
    for pattern in _TOKENIZER_FILES:
        for file in source_dir.glob(pattern):
            shutil.copyfile(file, target_dir / file.name)


def save_config(config: Any, target_dir: Path) -> None:
    """Write a transformers configuration as config.json, its RoPE in the words of transformers 4 too.

    Version 4 knows RoPE by `rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top level alone: without them it
    takes theta for 10,000, and all of a head for rotary, without a word. Version 5 reads either.
    """
    config.save_pretrained(target_dir)
    file = target_dir / "config.json"
    content = json.loads(file.read_text("utf-8"))
    scaling = dict(content.get("rope_parameters") or {})
    if "rope_theta" not in scaling:  # no RoPE, or one for each kind of layer, which version 4 cannot say
        return
    content |= {key: scaling.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in scaling}
    content["rope_scaling"] = None if scaling.get("rope_type", "default") == "default" else scaling
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint. UserError where the file is none."""
    try:
        return {**json.loads(file.read_text(encoding="utf-8"))}
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: is not a JSON object ({error}); give a complete checkpoint") from None


def _is_weight(file: Path) -> bool:
    return any(map(file.match, WEIGHTS)) or file.name.endswith(".index.json")


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_file())
