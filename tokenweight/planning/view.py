"""A plan as rows of data: artifacts, what they cost, what they need and what of it is missing, by name. Asks no server."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.stages import UnitStage
from tokenweight.evaluation.units import benchmark_of
from tokenweight.pipeline import Store
from tokenweight.pipeline.stage import Graph, HubModel
from tokenweight.planning.costs import Cost, stage_cost, summed
from tokenweight.planning.graph import union
from tokenweight.planning.plan import PlanEntry, schedule, shortened, to_run
from tokenweight.recipes.schema import Execution, HubCorpus
from tokenweight.training.stages import Pretrain, Train

Content = dict[str, Any]
_GATED = ("meta-llama/",)  # owners who ask for consent and a token
_STATUSES = ("missing", "fetch", "ok")  # in the order in which they are shown


def plan_rows(
    title: str, scale: str, parts: Mapping[str, Graph], left_out: Sequence[str], store: Store, execution: Execution
) -> tuple[Content, list[PlanEntry]]:
    """A plan of one or more experiments as data, every artifact once, and the entries behind it.

    `parts` are the experiments' graphs by name; `left_out` those that have none, and why.
    """
    graph = union(parts.values())
    graph.missing += left_out
    entries = schedule(graph, store)
    costs = {entry.artifact.fingerprint: stage_cost(entry.artifact, execution) for entry in entries}
    rows = [
        {
            "stage": entry.artifact.stage.name,
            "address": entry.artifact.address,
            "benchmark": entry.artifact.stage.unit.benchmark if isinstance(entry.artifact.stage, UnitStage) else None,
            "fingerprint": entry.artifact.fingerprint,
            "action": entry.action,
            "reason": entry.reason,
            "recipes": graph.wanted_by(entry.artifact),
            "cost": vars(costs[entry.artifact.fingerprint]),
        }
        for entry in entries
    ]
    seen, targets = set[str](), list[Content]()  # each of several alone, and what it adds to those before it
    for name, part in parts.items() if len(parts) > 1 else ():
        mine = {artifact.fingerprint for artifact in part.artifacts}
        targets.append({"target": name, **_sums(rows, costs, mine), "added": _sums(rows, costs, mine - seen)})
        seen |= mine
    content = {
        "target": title,
        "scale": scale,
        "store": str(store.root),
        "processes": execution.processes,
        "missing": graph.missing,
        "artifacts": rows,
        **_sums(rows, costs, costs),
        "targets": targets,
        "needs": [need._asdict() for need in needs(graph, entries, execution)],
    }
    return content, entries


def _sums(rows: Sequence[Content], costs: Mapping[str, Cost], of: Collection[str]) -> Content:
    """How many artifacts `of` these fingerprints run and are reused, how many models are trained, and what that costs."""
    running = [row for row in rows if row["fingerprint"] in of and row["action"] == "run"]
    return {
        "run": len(running),
        "reuse": sum(row["fingerprint"] in of and row["action"] == "reuse" for row in rows),
        "trained": sum(row["stage"] == "train" for row in running),
        "to_run": vars(summed(costs[row["fingerprint"]] for row in running)),
    }


class Need(NamedTuple):
    """One thing that the store does not make; `fetch`: not here, but the hub is asked when it is needed."""

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
                there = find_spec("deepspeed") is not None
                way = f"for ZeRO stage {execution.deepspeed_stage}: pip install -e '.[deepspeed]' in the project's directory"
                detail = "installed" if there else way
                found[Need("package", "deepspeed", "ok" if there else "missing", detail)] = None
    return sorted([*found, *(_models(models) if models else ())], key=lambda need: _STATUSES.index(need.status))


def _models(models: Iterable[HubModel]) -> Iterator[Need]:
    """Models of the hub, and the token that gated ones ask for."""
    from huggingface_hub import get_token, try_to_load_from_cache

    gated = dict[str, None]()
    for model in models:
        repo_id, revision = model.repo_id, model.revision
        if isinstance(try_to_load_from_cache(repo_id, "config.json", revision=revision), str):
            yield Need("model", repo_id, "ok", "in the local cache")
            continue
        yield _from_hub("model", repo_id, f"`hf download {repo_id} --revision {revision}`")
        if repo_id.startswith(_GATED):
            gated[repo_id] = None
    if gated:
        what, token = f"for the gated {', '.join(gated)}", bool(get_token())
        way = "present" if token else "accept the license on the model's page, then set HF_TOKEN or run `hf auth login`"
        yield Need("credential", "hub token", "ok" if token else "missing", f"{what}: {way}")


def _from_hub(kind: Literal["model", "data"], name: str, what: str) -> Need:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        unseen = "HF_HUB_OFFLINE is set, and whether the cache has it complete is not looked at here"
        return Need(kind, name, "missing", f"{what}: {unseen}")
    return Need(kind, name, "fetch", what)
