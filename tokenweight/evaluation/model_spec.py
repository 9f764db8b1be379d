"""The model spec: a checkpoint directory or an id of the hub, looked at before loading.

Of a hub model only the small files are fetched here (configuration, tokenizer); its revision is pinned to a commit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from tokenweight.context.checkpoint_files import RANDOM_SEED, read_object
from tokenweight.errors import UserError, hub_reason, nearest
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.pipeline.store import SMALL_FILES
from tokenweight.recipes.inputs import context_of
from tokenweight.recipes.schema import HubBase, LocalBase

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class ModelSpec(NamedTuple):
    """A model to evaluate, that has a causal configuration, a tokenizer and (a local one) weights."""

    name: str  # as the user wrote it
    label: str  # short and readable, usable in names of files
    base: LocalBase | HubBase


def find(name: str, revision: str | None = None, context_tokens: int | None = None) -> ModelSpec:
    """Look at a checkpoint directory, or at a model of the hub at `revision` (None: its main branch now).

    `context_tokens` takes the place of what config.json says. UserError: no such model, no tokenizer, no weights, not a
    causal language model, or no known context.
    """
    directory = Path(name).expanduser()
    local = directory.is_dir()
    if not local:
        if directory.exists():
            raise UserError(f"--model {name}: is a file; give the checkpoint's directory")
        if not _HUB_ID.fullmatch(name):
            raise UserError(f"--model {name}: no such directory; give a checkpoint directory or hub id")
        directory = _small_files(name, revision)
    elif revision is not None:
        raise UserError(f"--revision {revision}: is of a hub id, and {name} is a directory; leave it out")
    config = checked_config(directory, f"--model {name}", weights=local)
    context_tokens = context_of(config, context_tokens, f"--model {name}", "--context ")
    if local:
        path = directory.resolve()
        base: LocalBase | HubBase = LocalBase(path=str(path), context_tokens=context_tokens)
    else:
        base = HubBase(repo_id=name, revision=directory.name, context_tokens=context_tokens)
    label = re.sub(r"[^A-Za-z0-9._+-]+", "-", path.name if local else name.rpartition("/")[2]).strip("-.")
    return ModelSpec(name, label or "model", base)


def _small_files(repo_id: str, revision: str | None) -> Path:
    """Directory of a hub model's small files, named by the commit."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=SMALL_FILES))
    except (OSError, ValueError) as error:  # the hub client's own among them
        at, place = f" --revision {revision}" if revision else "", Path(repo_id)
        beside = nearest(place.name, [one.name for one in place.parent.glob("*/")])
        raise UserError(
            f"--model {repo_id}: no such directory here{beside}; as a hub id it is not in the local cache and could "
            f"not be fetched ({hub_reason(error)}); go online (gated models: `hf auth login`), fetch it with "
            f"`hf download {repo_id}{at}`, or give a checkpoint directory"
        ) from None


def checked_config(directory: Path, name: str, *, weights: bool = True) -> dict[str, Any]:
    """config.json of a causal language model, whose tokenizer, and `weights`, are those of the model that it describes.

    By small files and headers alone; UserError, of the model called `name`, otherwise.
    """
    from tokenweight.training.fit import check_weights

    config = _causal_config(name, directory)
    model_tokenizer(directory, name)
    if weights and config.get(RANDOM_SEED) is None:
        check_weights(directory, name)
    return config


def _causal_config(name: str, directory: Path) -> dict[str, Any]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    path = directory / "config.json"
    if not path.is_file():
        adapter = (directory / "adapter_config.json").is_file()
        way = "it is an adapter: merge it into its base first" if adapter else "give a checkpoint of transformers"
        raise UserError(f"{name}: no {'config.json there' if directory.is_dir() else 'such directory'}; {way}")
    config = read_object(path)
    kind = config.get("model_type")
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(kind))
    if causal is None:
        raise UserError(
            f"{name}: transformers has no causal language model of model_type {kind!r}; give one that it can "
            "load without code of the model's own"
        )
    known = {causal} if isinstance(causal, str) else set(causal)
    architectures = config.get("architectures") or sorted(known)
    if known.isdisjoint(architectures):
        raise UserError(
            f"{name}: is not a causal language model ({', '.join(architectures)}); "
            f"a {kind} one would be {', '.join(sorted(known))}"
        )
    return config
