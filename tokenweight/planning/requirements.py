"""What a plan needs that the store does not make: models, data, credentials, packages; which of it is missing, by name.

Loads no torch and asks no server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.stages import UnitStage
from tokenweight.evaluation.units import benchmark_of
from tokenweight.pipeline.stage import HubModel
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import PlanEntry, shortened, to_run
from tokenweight.recipes.schema import Execution, HubCorpus
from tokenweight.training.stages import Pretrain, Train

_GATED = ("meta-llama/",)  # owners who ask for consent and a token


@dataclass(frozen=True)
class Need:
    """One thing; `fetch`: not here, but the hub is asked when it is needed."""

    kind: Literal["model", "data", "credential", "package"]
    name: str
    status: Literal["missing", "fetch", "ok"]
    detail: str


def needs(graph: Graph, entries: Iterable[PlanEntry], execution: Execution) -> list[Need]:
    """What making the entries that run needs, each thing once, what is missing first."""
    found = dict.fromkeys(Need("data", note.partition(":")[0], "missing", note) for note in shortened(graph.missing))
    models: dict[HubModel, None] = {}
    for artifact in to_run(entries):
        models |= {one.stage: None for one in artifact.inputs.values() if isinstance(one.stage, HubModel)}
        given = [path for path in artifact.sources.values() if path and Path(path).exists()]
        found |= {Need("data", path, "ok", "your files"): None for path in given}
        match artifact.stage:
            case Chunk(corpus=HubCorpus() as corpus):
                found[_from_hub("data", corpus.repo_id, "the data set of the hub, at its pinned revision")] = None
            case UnitStage() as stage:
                if hub := benchmark_of(stage.unit).hub(stage.evaluation):
                    found[_from_hub("data", hub.repo_id, "the data set of the hub, at its pinned revision")] = None
            case Train() | Pretrain() if execution.deepspeed_stage:
                found[_deepspeed(execution.deepspeed_stage)] = None
    order = ("missing", "fetch", "ok")
    return sorted([*found, *(_models(list(models)) if models else ())], key=lambda need: order.index(need.status))


def _models(models: list[HubModel]) -> list[Need]:
    """Models of the hub, and the token that gated ones ask for."""
    from huggingface_hub import get_token, try_to_load_from_cache

    found, gated = [], dict[str, None]()
    for model in models:
        repo_id, revision = model.repo_id, model.revision
        if isinstance(try_to_load_from_cache(repo_id, "config.json", revision=revision), str):
            found.append(Need("model", repo_id, "ok", "in the local cache"))
            continue
        found.append(_from_hub("model", repo_id, f"`hf download {repo_id} --revision {revision}`"))
        if repo_id.startswith(_GATED):
            gated[repo_id] = None
    if gated:
        what, token = f"for the gated {', '.join(gated)}", bool(get_token())
        way = "present" if token else "accept the license on the model's page, then set HF_TOKEN or run `hf auth login`"
        found.append(Need("credential", "hub token", "ok" if token else "missing", f"{what}: {way}"))
    return found


def _from_hub(kind: Literal["model", "data"], name: str, what: str) -> Need:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        unseen = "HF_HUB_OFFLINE is set, and whether the cache has it complete is not looked at here"
        return Need(kind, name, "missing", f"{what}: {unseen}")
    return Need(kind, name, "fetch", what)


def _deepspeed(stage: int) -> Need:
    if find_spec("deepspeed") is not None:
        return Need("package", "deepspeed", "ok", "installed")
    way = f"for ZeRO stage {stage}: pip install -e '.[deepspeed]' in the project's directory"
    return Need("package", "deepspeed", "missing", way)
