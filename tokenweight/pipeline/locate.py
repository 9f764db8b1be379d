"""From an artifact to where it lies on this machine; models of the hub are fetched at their pinned revisions."""

from __future__ import annotations

from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Artifact, HubModel, Input
from tokenweight.pipeline.store import Store

SMALL_FILES = ["*.json", "*.model", "*.txt", "*.jinja", "tokenizer*"]  # configuration and tokenizer
# The same weights once more, in formats that are not read here.
_OTHER_FORMATS = ["original/*", "*.pth", "*.gguf", "*.onnx", "onnx/*", "*.h5", "*.msgpack", "*.tflite", "*.ot"]


def located(artifact: Artifact, store: Store) -> dict[str, Input]:
    """The inputs of an artifact where they lie, by role; of a "tokenizer" on the hub only the small files are fetched.

    UserError: a model of the hub is neither in the local cache nor to be had.
    """
    return {
        role: Input(locate(one, store, small=role == "tokenizer"), one.fingerprint)
        for role, one in artifact.inputs.items()
    }


def locate(artifact: Artifact, store: Store, *, small: bool = False) -> Path:
    """The directory that stages downstream read."""
    stage = artifact.stage
    if isinstance(stage, HubModel):
        return fetch(stage, SMALL_FILES if small else None)
    if artifact.is_source:
        return Path(artifact.sources["sha256"] or "")
    return store.path(artifact.identity) / stage.folder


def fetch(model: HubModel, patterns: list[str] | None) -> Path:
    """Directory of a hub model's files, from the local cache or the hub. UserError: it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repo_id, revision = model.repo_id, model.revision
    others = None if patterns else _OTHER_FORMATS
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=patterns, ignore_patterns=others))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"base {repo_id}@{revision[:8]}: not in the local cache and could not be fetched "
            f"({type(error).__name__}); run `hf auth login` and `hf download {repo_id} --revision {revision}`, "
            "or give a local checkpoint with --base DIR"
        ) from None
