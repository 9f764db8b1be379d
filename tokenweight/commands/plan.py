"""The commands that show what there is to run, and run nothing: `tokenweight plan`, `show-config` and `targets`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json, print_table
from tokenweight.flat import Part
from tokenweight.pipeline import Store
from tokenweight.pipeline.store import open_store
from tokenweight.planning.costs import stage_cost, summed
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import check_checkpoints, check_execution
from tokenweight.planning.view import plan_rows, print_plan
from tokenweight.recipes import load, load_all
from tokenweight.recipes.execution import default_execution, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    STORE,
    Choices,
    ExecutionOption,
    ExperimentsOption,
    JsonOption,
    NamedScaleOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
)
from tokenweight.recipes.recipe import resolved
from tokenweight.recipes.schema import Scale
from tokenweight.reports.targets import ALL, TARGETS, get_target
from tokenweight.reports.targets.find import targets_of
from tokenweight.tasks.experiments import plan_texts

ASSUMPTION = "GPU-hours are those of scale paper on an H200 (docs/plan.md), for training and frozen scoring alone."
# Table 6 is measured, not trained.
TABLE_6 = {
    "name": "table-6",
    "place": "Table 6",
    "shows": "Run time of each weighting: measured by benchmarks/training_cost.py, rendered by `tokenweight runtimes`",
}


@command
def plan(
    experiments: ExperimentsOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    as_json: JsonOption = False,
    choices: Choices,
    execution: ExecutionOption = (),
    everything: Annotated[
        bool, Field(description="List each artifact also where there are several experiments")
    ] = False,
) -> None:
    """What a run would do and cost; nothing is run."""
    place = open_store(store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    parts = {each.name: each.graph for each in wanted}
    like = wanted[0].like
    given = choices or execution  # else the scale's own, which need not run on this machine
    chosen = planned_execution(like, execution, **choices) if given else default_execution(like)
    content, entries = plan_rows(" ".join(experiments), scale, parts, left_out, place, chosen)
    if given:
        check_execution(entries, chosen)
    if as_json:
        print_json(content)
    else:
        print_plan(content, everything)
    check_checkpoints(entries, place, chosen)


@command
def show_config(
    recipe: Annotated[str, Field(description="A recipe, for example table-3/frozen-sparse")],
    /,
    *,
    scale: NamedScaleOption = "smoke",
    inputs: Annotated[Inputs, Part(Inputs, "settings")],
    as_json: JsonOption = False,
) -> None:
    """A recipe with the origin of each value."""
    loaded = load(recipe, scale, inputs)
    rows = list(resolved(loaded.recipe, loaded.settings))
    if as_json:
        print_json({key: {"value": value, "origin": origin} for key, value, origin in rows})
        return
    shown = [(key, json.dumps(value), origin) for key, value, origin in rows]
    print_table(("key", "value", "origin"), shown, f"{recipe} at scale {scale}")


@command
def targets(*, scale: NamedScaleOption = "smoke", store: StoreOption = STORE, as_json: JsonOption = False) -> None:
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
    """`targets`: one entry each, in the paper's order, then `paper`; `assumptions` of the GPU-hours.

    `recipes` are the rows' models, `trained` those that are trained; `in_store` how many of these the store holds at
    `scale`. `paper` counts a recipe of several targets once.
    """
    everything = sorted({recipe for name in TARGETS for recipe in get_target(name).recipes})
    trained = Planner(store).graph(load_all(everything, scale), ()).trained
    there = {recipe for recipe, node in trained.items() if store.state(node.identity).kind == "complete"}
    at_paper = {each.recipe.name: each for each in load_all(everything, "paper")}
    execution = default_execution("paper")

    def entry(name: str, place: str, shows: str, recipes: tuple[str, ...], seeds: int = 1) -> dict[str, Any]:
        nodes = Planner(store).graph([at_paper[recipe] for recipe in recipes], ()).artifacts
        hours = summed(stage_cost(node, execution) for node in nodes).gpu_hours or 0.0
        return {
            "name": name,
            "place": place,
            "shows": shows,
            "recipes": list(recipes),
            "seeds": seeds,
            "trained": sum(recipe in trained for recipe in recipes),
            "in_store": sum(recipe in there for recipe in recipes),
            "gpu_hours": round(seeds * hours, 1),
        }

    entries = [TABLE_6]
    for name in TARGETS:
        target = get_target(name)
        shows = target.title.partition(" (")[0]
        entries.append(entry(name, target.paper_place or "not in the paper", shows, target.recipes, target.seeds))
    entries.sort(key=_order)
    whole = tuple(dict.fromkeys(recipe for name in targets_of(ALL) for recipe in get_target(name).recipes))
    entries.append(
        entry(ALL, "all of the paper but Table 6", "All of the paper but Table 6, each recipe trained once", whole)
    )
    return {"scale": scale, "targets": entries, "assumptions": [ASSUMPTION]}


def _order(row: dict[str, Any]) -> tuple[bool, str, int]:
    """Tables, then figures, by number; what the paper does not have comes last."""
    kind, _, number = row["name"].partition("-")
    return not number.isdecimal(), {"table": "a"}.get(kind, kind), int(number) if number.isdecimal() else 0
