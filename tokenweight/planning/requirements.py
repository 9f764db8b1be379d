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
from tokenweight.pipeline.stage import HubModel, Stage
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import PlanEntry, shortened
from tokenweight.recipes.schema import Corpus, Execution, FilesCorpus, HubCorpus
from tokenweight.training.stages import Pretrain, Train

_GATED = ("meta-llama/",)  # owners who ask for consent and a token
# Data sets of benchmarks that are read from the hub, where evaluation.*.data is "hub".
_ON_THE_HUB = ("longbench", "mmlu", "bbh")


@dataclass(frozen=True)
class Need:
    """One thing; `fetch`: not here, but the hub is asked when it is needed."""

    kind: Literal["model", "data", "credential", "package"]
    name: str
    status: Literal["ok", "fetch", "missing"]
    detail: str


def needs(graph: Graph, entries: Iterable[PlanEntry], execution: Execution) -> list[Need]:
    """What making the entries that run needs, each thing once, what is missing first."""
    running = [entry.artifact for entry in entries if entry.action == "run"]
    models: dict[tuple[str, str], None] = {}
    corpora: dict[str, Corpus] = {}
    benchmarks: dict[str, None] = {}
    for artifact in running:
        for one in artifact.inputs.values():
            if isinstance(one.stage, HubModel):
                models[one.stage.repo_id, one.stage.revision] = None
        stage = artifact.stage.placed(artifact.sources)
        if isinstance(stage, Chunk):
            corpora[stage.corpus.model_dump_json()] = stage.corpus
        if isinstance(stage, UnitStage) and stage.unit.benchmark in ("perplexity", "pmi"):
            corpora[stage.evaluation.perplexity.corpus.model_dump_json()] = stage.evaluation.perplexity.corpus
        if isinstance(stage, UnitStage) and _reads_the_hub(stage):
            benchmarks[stage.unit.benchmark] = None
    found = [
        *(Need("data", note.partition(":")[0], "missing", note) for note in shortened(graph.missing)),
        *_credential(models),
        *(_model(*hub) for hub in models),
        *(need for corpus in corpora.values() if (need := _corpus(corpus))),
        *(Need("data", name, *_from_hub("the data set of the hub")) for name in benchmarks),
        *_packages([artifact.stage for artifact in running], execution),
    ]
    order = ("missing", "fetch", "ok")
    return sorted(found, key=lambda need: order.index(need.status))


def _reads_the_hub(stage: UnitStage) -> bool:
    name = stage.unit.benchmark
    return name in _ON_THE_HUB and getattr(stage.evaluation, name).data == "hub"


def _credential(models: Iterable[tuple[str, str]]) -> list[Need]:
    gated = [repo_id for repo_id, revision in models if repo_id.startswith(_GATED) and not _cached(repo_id, revision)]
    if not gated:
        return []
    from huggingface_hub import get_token

    what = f"for the gated {', '.join(dict.fromkeys(gated))}"
    if get_token():
        return [Need("credential", "hub token", "ok", f"{what}: present")]
    way = "accept the license on the model's page, then set HF_TOKEN or run `hf auth login`"
    return [Need("credential", "hub token", "missing", f"{what}: {way}")]


def _model(repo_id: str, revision: str) -> Need:
    if _cached(repo_id, revision):
        return Need("model", repo_id, "ok", "in the local cache")
    return Need("model", repo_id, *_from_hub(f"`hf download {repo_id} --revision {revision}`"))


def _cached(repo_id: str, revision: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(repo_id, "config.json", revision=revision), str)


def _corpus(corpus: Corpus) -> Need | None:
    match corpus:
        case HubCorpus():
            return Need("data", corpus.repo_id, *_from_hub("the data set of the hub, at its pinned revision"))
        case FilesCorpus() if Path(corpus.path).exists():
            return Need("data", corpus.path, "ok", "your files")
    return None  # shipped; or among what the graph misses


def _from_hub(what: str) -> tuple[Literal["fetch", "missing"], str]:
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if offline:
        return "missing", f"{what}: HF_HUB_OFFLINE is set, and whether the cache has it whole is not looked at here"
    return "fetch", what


def _packages(stages: Iterable[Stage], execution: Execution) -> list[Need]:
    trains = any(isinstance(stage, Train | Pretrain) for stage in stages)
    if not trains or not execution.deepspeed_stage:
        return []
    there = find_spec("deepspeed") is not None
    way = f"for ZeRO stage {execution.deepspeed_stage}: pip install -e '.[deepspeed]' in the project's directory"
    return [Need("package", "deepspeed", "ok" if there else "missing", "installed" if there else way)]
