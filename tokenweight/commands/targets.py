"""The command `tokenweight targets`: what each shows, which recipes it trains, what the store has, what it costs."""

from __future__ import annotations

from typing import Any

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json
from tokenweight.pipeline import Store
from tokenweight.pipeline.opened import open_store
from tokenweight.planning.costs import stage_cost, summed
from tokenweight.planning.graph import Planner
from tokenweight.recipes import load_all
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import STORE, JsonOption, NamedScaleOption, StoreOption
from tokenweight.recipes.schema import Scale
from tokenweight.reports.targets import ALL, TARGETS, get_target
from tokenweight.reports.targets.find import targets_of

ASSUMPTION = "GPU-hours are those of scale paper on an H200 (docs/plan.md), for training and frozen scoring alone."
# Table 6 is measured, not trained.
TABLE_6 = {
    "name": "table-6",
    "place": "Table 6",
    "shows": "Run time of each weighting: measured by benchmarks/training_cost.py, rendered by `tokenweight runtimes`",
}


@command
def targets(*, scale: NamedScaleOption = "smoke", store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """What each experiment of the paper shows, trains and costs, and what of it is in the store."""
    content = overview(scale, open_store(store))
    if as_json:
        print_json(content)
    else:
        _print_overview(content)


def overview(scale: Scale, store: Store) -> dict[str, Any]:
    """`targets`: one entry each, in the paper's order, then `paper`; `assumptions` of the GPU-hours.

    `recipes` are the rows' models, `trained` those that are trained; `in_store` how many of these the store holds at
    `scale`. `paper` counts a recipe of several targets once.
    """
    everything = {recipe for name in TARGETS for recipe in get_target(name).recipes}
    loaded = load_all(sorted(everything), scale)
    trained = Planner(store).graph(loaded, ()).trained
    there = {recipe for recipe, node in trained.items() if store.state(node.identity).kind == "whole"}
    at_paper = {each.recipe.name: each for each in load_all(sorted(everything), "paper")}
    execution = default_execution("paper")

    def hours_of(recipes: tuple[str, ...]) -> float:
        nodes = Planner(store).graph([at_paper[recipe] for recipe in recipes], ()).artifacts
        return summed((node, stage_cost(node, execution)) for node in nodes).gpu_hours or 0.0

    def entry(name: str, place: str, shows: str, recipes: tuple[str, ...], seeds: int = 1) -> dict[str, Any]:
        return {
            "name": name,
            "place": place,
            "shows": shows,
            "recipes": list(recipes),
            "seeds": seeds,
            "trained": sum(recipe in trained for recipe in recipes),
            "in_store": sum(recipe in there for recipe in recipes),
            "gpu_hours": round(seeds * hours_of(recipes), 1),
        }

    entries = [
        entry(
            name,
            target.paper_place or "not in the paper",
            target.title.partition(" (")[0],
            target.recipes,
            target.seeds,
        )
        for name, target in ((name, get_target(name)) for name in TARGETS)
    ]
    entries.append(TABLE_6)
    entries.sort(key=lambda made: _order(str(made["name"])))
    whole = tuple(dict.fromkeys(recipe for name in targets_of(ALL) for recipe in get_target(name).recipes))
    entries.append(
        entry(ALL, "all of the paper but Table 6", "All of the paper but Table 6, each recipe trained once", whole)
    )
    return {"scale": scale, "targets": entries, "assumptions": [ASSUMPTION]}


def _order(name: str) -> tuple[bool, str, int]:
    """Tables, then figures, by number; what the paper does not have comes last."""
    kind, _, number = name.partition("-")
    return not number.isdecimal(), {"table": "a"}.get(kind, kind), int(number) if number.isdecimal() else 0


def _print_overview(content: dict[str, Any]) -> None:
    """The overview as a table on the console."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Targets (stored: trained recipes in the store at scale {content['scale']})", title_justify="left"
    )
    for heading, justify in (
        ("target", "left"), ("shows", "left"), ("models", "right"), ("trained", "right"), ("stored", "right"),
        ("H200 hours", "right"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for row in content["targets"]:
        if "recipes" not in row:
            table.add_row(row["name"], row["shows"], *("-",) * 4)
            continue
        seeds = f" x {row['seeds']}" if row["seeds"] > 1 else ""
        counts = (f"{len(row['recipes'])}{seeds}", f"{row['trained']}{seeds}", f"{row['in_store']}")
        table.add_row(row["name"], row["shows"], *counts, f"{row['gpu_hours']:,.0f}")
    console = Console()
    console.print(table)
    for note in content["assumptions"]:
        console.print(note, markup=False, highlight=False)
