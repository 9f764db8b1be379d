"""Making one artifact: its inputs where they lie on this machine, and its stage in the directory that the store gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline.stage import Artifact, HubModel, Input
from tokenweight.pipeline.store import Build, Store
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution

SMALL_FILES = ["*.json", "*.model", "*.txt", "*.jinja", "tokenizer*"]  # configuration and tokenizer
# The same weights once more, in formats that are not read here.
_OTHER_FORMATS = ["original/*", "*.pth", "*.gguf", "*.onnx", "onnx/*", "*.h5", "*.msgpack", "*.tflite", "*.ot"]


def made(
    artifact: Artifact, store: Store, execution: Execution, progress: Progress, note: Callable[[str], None]
) -> bool:
    """Make an artifact whose inputs are there, unless the store holds it; whether it was there.

    UserError: a model of the hub is neither in the local cache nor to be had.
    """

    def build(work: Build) -> None:
        inputs = {
            role: Input(locate(one, store, small=role == "tokenizer"), one.fingerprint)
            for role, one in artifact.inputs.items()
        }
        stage = artifact.stage.placed(artifact.sources)
        work.facts.update(stage.run(inputs, work.directory, execution, progress))

    return store.get_or_build(artifact.identity, build, note=note)[1]


def locate(artifact: Artifact, store: Store, *, small: bool = False) -> Path:
    """The directory that stages downstream read; `small`: of a model on the hub, without its weights."""
    stage = artifact.stage
    if isinstance(stage, HubModel):
        return _fetch(stage, SMALL_FILES if small else None)
    if artifact.is_source:
        return Path(artifact.sources["sha256"] or "")
    return store.path(artifact.identity) / stage.folder


def _fetch(model: HubModel, patterns: list[str] | None) -> Path:
    """From the local cache or the hub, at the pinned revision."""
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
