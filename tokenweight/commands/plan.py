"""The commands that show what there is to run, and run nothing: `tokenweight plan`, `show-config` and `targets`."""

import json
import os
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from rich.filesize import decimal

from tokenweight.commands.command import command, print_json, print_table, print_text
from tokenweight.corpus.sources import not_read
from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.units import UnitStage, benchmark_of
from tokenweight.flat import Part
from tokenweight.pipeline.stage import Graph, HubModel
from tokenweight.pipeline.store import Store, open_store
from tokenweight.planning.costs import GPU, Cost, stage_cost, summed
from tokenweight.planning.graph import Planner, union
from tokenweight.planning.plan import PlanEntry, check_execution, check_texts, schedule, shortened, to_run
from tokenweight.progress import counted
from tokenweight.recipes import load, load_all, names
from tokenweight.recipes.execution import default_execution, execution_for
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import STORE, Choices, Seeds
from tokenweight.recipes.schema import Execution, HubCorpus, Scale
from tokenweight.reports.targets import ALL, TARGETS, get_target
from tokenweight.reports.targets.find import targets_of
from tokenweight.tasks.experiments import plan_texts
from tokenweight.training.stages import Pretrain, Train
from tokenweight.webpage import plain_environment

_NAMED = 8  # recipes of one row of the table
Content = dict[str, Any]
_STATUSES = ("missing", "fetch", "note", "ok")  # in the order in which they are shown
_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@command
def plan(
    experiments: list[str],
    /,
    *,
    inputs: Inputs,
    scale: str = "smoke",
    seeds: Seeds | None = None,
    store: Path = STORE,
    as_json: bool = False,
    choices: Choices,
    execution: tuple[str, ...] = (),
    everything: bool = False,
) -> None:
    place = open_store(store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    parts = {each.name: each.graph for each in wanted}
    chosen = execution_for(wanted[0].like, execution, here=False, **choices)
    title = wanted[0].name if len(wanted) == 1 else " ".join(experiments)
    content, entries = plan_rows(title, scale, parts, left_out, place, chosen)
    print_json(content) if as_json else print_plan(content, everything)
    check_execution(entries, place, chosen)
    check_texts(entries)


@command
def show_config(
    recipe: str,
    /,
    *,
    scale: Scale = "smoke",
    inputs: Annotated[Inputs, Part(Inputs, "settings")],
    as_json: bool = False,
) -> None:
    rows = list(load(recipe, scale, inputs).settings())
    if as_json:
        print_json({key: {"value": value, "origin": origin} for key, value, origin in rows})
        return
    shown = [(key, json.dumps(value), origin) for key, value, origin in rows]
    print_table(("key", "value", "origin"), shown, f"{recipe} at scale {scale}")


@command
def targets(*, scale: Scale = "smoke", store: Path = STORE, as_json: bool = False) -> None:
    """What each experiment of the paper shows, trains and costs, and what of it is in the store."""
    content = overview(scale, open_store(store))
    if as_json:
        print_json(content)
        return
    rows = []
    for row in content["targets"]:
        numbers = ["-"] * 4
        if "recipes" in row:
            seeds = f" x {row['seeds']}" if row["seeds"] > 1 else ""
            numbers = [f"{len(row['recipes'])}{seeds}", f"{row['trained']}{seeds}", str(row["in_store"])]
            numbers += [f"{row['gpu_hours']:,.0f}"]
        rows.append((row["name"], row["shows"], *numbers))
    headings = ("target", "shows", "models", "trained", "stored", "H200 hours")
    print_table(headings, rows, f"Targets (stored: trained recipes in the store at scale {scale})", numbers_from=2)
    print(*content["assumptions"], sep="\n")


def overview(scale: Scale, store: Store) -> dict[str, Any]:
    """`targets`: one entry each, in the paper's order, then `paper`, which counts a recipe of several targets once.

    `recipes` are the rows' models, `trained` those that are trained; `in_store` how many of these the store holds.
    """
    trained = Planner(store).graph(load_all(names(), scale), ()).trained
    there = {recipe for recipe, node in trained.items() if store.state(node.identity).kind == "complete"}
    at_paper, execution = {each.name: each for each in load_all(names(), "paper")}, default_execution("paper")
    entries = list[dict[str, Any]]()
    for name in (*TARGETS, ALL):
        first, *others = [get_target(target) for target in targets_of(name)]
        recipes = list(dict.fromkeys(recipe for one in (first, *others) for recipe in one.recipes))
        nodes = Planner(store).graph([at_paper[recipe] for recipe in recipes], ()).artifacts
        hours = summed(stage_cost(node, execution) for node in nodes).gpu_hours or 0.0
        place, shows = first.paper_place or "not in the paper", first.title.partition(" (")[0]
        entry: dict[str, Any] = {"name": name, "place": place, "shows": shows, "recipes": recipes, "seeds": first.seeds}
        entry |= {"trained": len(trained.keys() & set(recipes)), "in_store": len(there & set(recipes))}
        entry |= _DATA.get(name, {})
        entries.append({**entry, "gpu_hours": round(entry["seeds"] * hours, 1)})
    entries.insert(TARGETS.index("table-7"), _DATA["table-6"])
    return {"scale": scale, "targets": entries, "assumptions": _DATA["assumptions"]}


def print_plan(plan: dict[str, Any], everything: bool = False) -> None:
    """Print a plan: of one experiment each artifact or group, of several a line for each (all with `everything`)."""
    title = f"{plan['target']} at scale {plan['scale']}, store {plan['store']}"
    if everything or not plan["targets"]:
        timed = [f"{GPU} hours"] if any(row["cost"]["gpu_hours"] is not None for row in plan["artifacts"]) else []
        headings = ("stage", "artifact", "action", "reason", "for", *timed)
        print_table(headings, (row[: len(headings)] for row in _artifact_rows(plan["artifacts"])), title)
    if plan["targets"]:
        rows = []
        for one in (*plan["targets"], {**plan, "target": "shared once"}):  # what they share counts once in the sum
            new = f" ({one['added']['trained']})" if "added" in one else ""
            counts = str(one["run"]), str(one["reuse"]), f"{one['trained']}{new}"
            rows.append((one["target"], *counts, _hours([one["to_run"]]), decimal(int(one["to_run"]["disk_bytes"]))))
        print_table(("target", "run", "reuse", "train (new)", f"{GPU} hours", "disk"), rows, title, numbers_from=1)
    templates = plain_environment(Path(__file__).parent)
    templates.filters["hours"] = _rounded
    templates.filters["bytes"] = lambda count: decimal(int(count))
    waiting = sum(row["action"] == "wait" for row in plan["artifacts"])
    text = templates.get_template("plan.txt.jinja").render(plan=plan, waiting=waiting, gpu=GPU)
    print_text(text)


def _artifact_rows(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Evaluations of a checkpoint and prepared prompts of a benchmark are summed up, everything else is named."""
    everyone = {recipe for row in rows for recipe in row["recipes"]}
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        name = row["address"].partition("/")[2]
        summed_up = {"evaluate": name.partition("--")[0], "prepare": row["benchmark"]}.get(row["stage"], name)
        groups.setdefault((row["stage"], summed_up, row["action"], row["reason"]), []).append(row)
    for (stage, name, action, reason), members in groups.items():
        units = Counter(row["benchmark"] for row in members if row["benchmark"])
        counts = ", ".join(f"{benchmark} {count}" for benchmark, count in units.items())
        of_any = dict.fromkeys(recipe for row in members for recipe in row["recipes"])
        named = (recipe.partition("/")[2].partition(" ") for recipe in of_any)
        recipes = [recipe if recipe == row else f"{recipe}{space}{row}" for recipe, space, row in named]
        wanted = ", ".join(recipes) if len(recipes) <= _NAMED else f"{len(recipes)} recipes"
        wanted = "all" if len(recipes) == len(everyone) else wanted
        hours = _hours([row["cost"] for row in members if action == "run"])
        yield stage, f"{counted(len(members), 'unit')} ({counts})" if units else name, action, reason, wanted, hours


def _hours(costs: Sequence[dict[str, Any]]) -> str:
    known = [cost["gpu_hours"] for cost in costs if cost["gpu_hours"] is not None]
    return _rounded(sum(known)) if known else "-"


def _rounded(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 or not hours else f"{hours:.2g}"


def plan_rows(
    title: str, scale: str, parts: Mapping[str, Graph], left_out: Sequence[str], store: Store, execution: Execution
) -> tuple[Content, list[PlanEntry]]:
    """A plan of experiments as data, every artifact once; `parts`: their graphs by name, `left_out`: why some have none."""
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
    status: Literal["missing", "fetch", "note", "ok"]
    detail: str


def needs(graph: Graph, entries: Iterable[PlanEntry], execution: Execution) -> list[Need]:
    """What making the entries that run needs, each thing once, what is missing first."""
    found = dict.fromkeys(Need("data", note.partition(":")[0], "missing", note) for note in shortened(graph.missing))
    models: dict[HubModel, None] = {}
    for artifact in to_run(entries):
        models |= {one.stage: None for one in artifact.inputs.values() if isinstance(one.stage, HubModel)}
        given = [path for path in artifact.sources.values() if path and Path(path).exists()]
        found |= {Need("data", path, "ok", "your files"): None for path in given}
        if isinstance(artifact.stage, Chunk):
            lines = not_read(artifact.stage.placed(artifact.sources).corpus)
            found |= {Need("data", path, "note", line): None for path, line in lines.items()}
        match artifact.stage:
            case Chunk(corpus=HubCorpus() as corpus):
                found[_from_hub("data", corpus.repo_id, "the data set of the hub, at its pinned revision")] = None
            case UnitStage() as stage:
                if hub := benchmark_of(stage.unit).hub(stage.placed(artifact.sources).evaluation):
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
        if repo_id.startswith(tuple(_DATA["gated"])):
            gated[repo_id] = None
    if gated:
        what, token = f"for the gated {', '.join(gated)}", bool(get_token())
        way = "present" if token else "accept the license on the model's page, then set HF_TOKEN or run `hf auth login`"
        yield Need("credential", "hub token", "ok" if token else "missing", f"{what}: {way}")


def _from_hub(kind: Literal["model", "data"], name: str, what: str) -> Need:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        unseen = "HF_HUB_OFFLINE is set; whether the cache has it completely is not checked here"
        return Need(kind, name, "missing", f"{what}: {unseen}")
    return Need(kind, name, "fetch", what)
