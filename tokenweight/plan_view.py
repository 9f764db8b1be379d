"""A plan as rows of data and as a table on the console."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from tokenweight.graph import Graph
from tokenweight.planning import Step, schedule
from tokenweight.stages import EvaluateWork, PrepareWork
from tokenweight.store import Store


def plan_rows(graph: Graph, store: Store) -> list[dict[str, Any]]:
    """One entry per artifact: stage, address, fingerprint, action, reason, and the recipes that need it."""
    return [
        {
            "stage": step.node.stage,
            "address": step.node.identity.address,
            "fingerprint": step.node.identity.fingerprint,
            "action": step.action,
            "reason": step.reason,
            "recipes": graph.wanted_by(step.node),
        }
        for step in schedule(graph, store)
    ]


def print_plan(target: str, scale: str, graph: Graph, store: Store) -> None:
    """Print a plan: evaluations and prepared prompts are summed up, everything else is named."""
    from rich.console import Console
    from rich.table import Table

    steps = schedule(graph, store)
    table = Table(title=f"{target} at scale {scale}, store {store.root}", title_justify="left")
    for heading in ("stage", "artifact", "action", "reason", "for"):
        table.add_column(heading, overflow="fold")
    for (stage, _), members in groupby(steps, key=_summary_key):
        group = list(members)
        if len(group) == 1 and stage not in ("prepare", "evaluate"):
            step = group[0]
            address = step.node.identity.address.partition("/")[2]
            table.add_row(stage, address, step.action, step.reason, _recipes(graph, group))
        else:
            for action, reason in dict.fromkeys((step.action, step.reason) for step in group):
                same = [step for step in group if (step.action, step.reason) == (action, reason)]
                table.add_row(stage, f"{len(same)} {_benchmarks(same)}", action, reason, _recipes(graph, group))
    console = Console()
    console.print(table)
    counts = Counter(step.action for step in steps)
    console.print(f"{counts['run']} to run, {counts['reuse']} to reuse, {counts['wait']} to wait for")
    for name in graph.missing:
        console.print(f"missing: {name}", style="bold red", markup=False, highlight=False)


def _summary_key(step: Step) -> tuple[str, str]:
    if step.node.stage == "evaluate":
        return "evaluate", step.node.identity.name.partition("--")[0]
    if step.node.stage == "prepare":
        return "prepare", step.node.identity.name.partition("-")[0]
    return step.node.stage, step.node.identity.fingerprint


def _benchmarks(steps: list[Step]) -> str:
    works = [step.node.work for step in steps]
    counts = Counter(work.unit.benchmark for work in works if isinstance(work, PrepareWork | EvaluateWork))
    return "units (" + ", ".join(f"{name} {count}" for name, count in counts.items()) + ")"


def _recipes(graph: Graph, steps: list[Step]) -> str:
    names = graph.wanted_by(steps[0].node)
    short = [name.partition("/")[2] for name in names]
    return ", ".join(short) if len(short) < len(graph.evaluations) else "all"
