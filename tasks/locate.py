"""From a checkpoint in a plan to a directory on this machine."""

from __future__ import annotations

from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.subject import SMALL_FILES
from tokenweight.pipeline import Store
from tokenweight.stages import Checkpoint

# The same weights once more, in formats that are not read here.
_OTHER_FORMATS = ["original/*", "*.pth", "*.gguf", "*.onnx", "onnx/*", "*.h5", "*.msgpack", "*.tflite", "*.ot"]


def model_directory(checkpoint: Checkpoint, store: Store) -> Path:
    """Directory that transformers can load; a model of the hub is fetched at its pinned revision."""
    if checkpoint.node is not None:
        return store.path(checkpoint.node.identity) / "model"
    if checkpoint.path is not None:
        return checkpoint.path
    return _fetch(checkpoint, patterns=None)


def tokenizer_directory(checkpoint: Checkpoint, store: Store) -> Path:
    """Like `model_directory`, but of a model of the hub only the tokenizer's files are fetched."""
    if checkpoint.hub is None:
        return model_directory(checkpoint, store)
    return _fetch(checkpoint, patterns=SMALL_FILES)


def _fetch(checkpoint: Checkpoint, patterns: list[str] | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if checkpoint.hub is None:
        raise ValueError(f"{checkpoint.label} has no source")
    repo_id, revision = checkpoint.hub
    others = None if patterns else _OTHER_FORMATS
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=patterns, ignore_patterns=others))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"base {repo_id}@{revision[:8]}: not in the local cache and could not be fetched "
            f"({type(error).__name__}); run `hf auth login` and `hf download {repo_id} --revision {revision}`, "
            "or give a local checkpoint with --base DIR"
        ) from None
