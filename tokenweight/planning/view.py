"""A plan as rows of data, and as tables on the console: artifacts, what they cost, what they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tokenweight.evaluation.stages import UnitStage
from tokenweight.pipeline import Store
from tokenweight.planning.costs import GPU, Cost, stage_cost, summed
from tokenweight.planning.graph import Graph, union
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.planning.requirements import needs
from tokenweight.recipes.schema import Execution

_NAMED = 8  # recipes of one row of the table
Content = dict[str, Any]


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
            "cost": asdict(costs[entry.artifact.fingerprint]),
        }
        for entry in entries
    ]
    content = {
        "target": title,
        "scale": scale,
        "store": str(store.root),
        "processes": execution.processes,
        "missing": graph.missing,
        "artifacts": rows,
        **_sums(rows, costs, costs),
        "targets": _targets(rows, costs, parts),
        "needs": [asdict(need) for need in needs(graph, entries, execution)],
    }
    return content, entries


def _sums(rows: Sequence[Content], costs: Mapping[str, Cost], of: Collection[str]) -> Content:
    """How many artifacts `of` these fingerprints run and are reused, how many models are trained, and what that costs."""
    running = [row for row in rows if row["fingerprint"] in of and row["action"] == "run"]
    return {
        "run": len(running),
        "reuse": sum(row["fingerprint"] in of and row["action"] == "reuse" for row in rows),
        "trained": sum(row["stage"] == "train" for row in running),
        "to_run": asdict(summed(costs[row["fingerprint"]] for row in running)),
    }


def _targets(rows: Sequence[Content], costs: Mapping[str, Cost], parts: Mapping[str, Graph]) -> list[Content]:
    """Each of several experiments alone, and what it adds to those before it."""
    seen, found = set[str](), list[Content]()
    for name, graph in parts.items() if len(parts) > 1 else ():
        mine = {artifact.fingerprint for artifact in graph.artifacts}
        found.append({"target": name, **_sums(rows, costs, mine), "added": _sums(rows, costs, mine - seen)})
        seen |= mine
    return found


def print_plan(plan: Content, everything: bool) -> None:
    """Print a plan: of one experiment each artifact or group, of several a line for each (all with `everything`)."""
    console = Console()
    title = f"{plan['target']} at scale {plan['scale']}, store {plan['store']}"
    if everything or not plan["targets"]:
        console.print(_artifact_table(plan["artifacts"], title))
    if plan["targets"]:
        console.print(_target_table(plan, title))
    for line in _lines(plan):
        console.print(line, markup=False, highlight=False)
    for need in plan["needs"]:
        if need["status"] == "missing":
            named = f"{need['kind']} {need['name']}, {need['detail']}"
            what = need["detail"] if need["detail"].startswith(need["name"]) else named
            console.print(f"missing: {what}", style="bold red", markup=False, highlight=False)


def _lines(plan: Content) -> list[str]:
    """The sum in words; what is not known is named."""
    cost, waiting = plan["to_run"], sum(row["action"] == "wait" for row in plan["artifacts"])
    lines = [f"{plan['run']} to run, {plan['reuse']} to reuse, {waiting} to wait for"]
    if cost["gpu_hours"] is not None:
        lines.append(f"GPU-hours: {cost['gpu_hours']:,.0f} on {GPU} (how they are estimated: docs/plan.md)")
    if cost["disk_bytes"]:
        passing = f", and {_size(cost['passing_bytes'])} beside them while one trains" if cost["passing_bytes"] else ""
        lines.append(f"disk: {_size(cost['disk_bytes'])}{passing}")
    if cost["memory_bytes"] is not None:
        lines.append(f"memory: {_size(cost['memory_bytes'])} at most on each of {plan['processes']} GPUs")
    if cost["unknown"]:
        lines.append("not known: " + ", ".join(f"{what} ({count})" for what, count in cost["unknown"].items()))
    if fetched := [need["name"] for need in plan["needs"] if need["status"] == "fetch"]:
        lines.append(f"to be fetched from the hub: {', '.join(fetched)}")
    return lines


def _target_table(plan: Content, title: str) -> Table:
    """What each experiment takes alone, and the sum, in which what they share counts once."""
    table = Table(title=title, title_justify="left")
    for heading in ("target", "run", "reuse", "train (new)", f"{GPU} hours", "disk"):
        table.add_column(
            heading, justify="left" if heading == "target" else "right", no_wrap=heading in ("target", "disk")
        )
    for one in (*plan["targets"], {**plan, "target": "shared once"}):
        if "added" not in one:
            table.add_section()
        new = f" ({one['added']['trained']})" if "added" in one else ""
        counts = str(one["run"]), str(one["reuse"]), f"{one['trained']}{new}"
        table.add_row(one["target"], *counts, _hours([one["to_run"]]), _size(one["to_run"]["disk_bytes"]))
    return table


def _artifact_table(rows: Sequence[Content], title: str) -> Table:
    """Evaluations of a checkpoint and prepared prompts of a benchmark are summed up, everything else is named."""
    everyone = {recipe for row in rows for recipe in row["recipes"]}
    timed = any(row["cost"]["gpu_hours"] is not None for row in rows)
    table = Table(title=title, title_justify="left")
    for heading in ("stage", "artifact", "action", "reason", *([f"{GPU} hours"] if timed else []), "for"):
        table.add_column(heading, overflow="fold")
    groups: dict[tuple[str, ...], list[Content]] = {}
    for row in rows:
        name = row["address"].partition("/")[2]
        summed_up = {"evaluate": name.partition("--")[0], "prepare": row["benchmark"]}.get(row["stage"], name)
        groups.setdefault((row["stage"], summed_up, row["action"], row["reason"]), []).append(row)
    for (stage, name, action, reason), members in groups.items():
        units = Counter(row["benchmark"] for row in members if row["benchmark"])
        counts = ", ".join(f"{benchmark} {count}" for benchmark, count in units.items())
        hours = [_hours([row["cost"] for row in members if action == "run"])] if timed else []
        recipes = [recipe.partition("/")[2] for recipe in members[0]["recipes"]]
        wanted = ", ".join(recipes) if len(recipes) <= _NAMED else f"{len(recipes)} recipes"
        wanted = "all" if len(recipes) == len(everyone) else wanted
        table.add_row(stage, f"{len(members)} units ({counts})" if units else name, action, reason, *hours, wanted)
    return table


def _hours(costs: Sequence[Content]) -> str:
    known = [cost["gpu_hours"] for cost in costs if cost["gpu_hours"] is not None]
    return f"{sum(known):,.0f}" if known else "-"


def _size(count: float) -> str:
    return decimal(int(count))
