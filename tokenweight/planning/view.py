"""A plan as rows of data and as tables on the console: artifacts, what they cost, what they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from tokenweight.evaluation.stages import UnitStage
from tokenweight.pipeline import Store
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.costs import GPU, StageCost, Sum, stage_cost, summed
from tokenweight.planning.graph import Graph, union
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.planning.requirements import Need, needs
from tokenweight.recipes.schema import Execution


@dataclass(frozen=True)
class TargetPart:
    """One of several targets, and its plan."""

    name: str
    graph: Graph


@dataclass(frozen=True)
class PlanView:
    """A plan of one or more targets, every artifact once."""

    target: str
    scale: str
    store: Store
    execution: Execution
    parts: tuple[TargetPart, ...]
    graph: Graph
    steps: tuple[PlanEntry, ...]
    costs: dict[Artifact, StageCost]

    @classmethod
    def of(
        cls, target: str, scale: str, parts: Sequence[TargetPart], left_out: list[str], store: Store, how: Execution
    ) -> PlanView:
        """Look into the store, and at what each artifact costs."""
        graph = union(part.graph for part in parts)
        graph.missing += left_out
        steps = tuple(schedule(graph, store))
        costs = {step.artifact: stage_cost(step.artifact, how) for step in steps}
        return cls(target, scale, store, how, tuple(parts), graph, steps, costs)

    @property
    def to_run(self) -> list[Artifact]:
        """What would be made."""
        return [step.artifact for step in self.steps if step.action == "run"]

    def sum_of(self, nodes: Sequence[Artifact]) -> Sum:
        """Their costs together."""
        return summed((node, self.costs[node]) for node in nodes)

    def needs(self) -> list[Need]:
        """What it takes beside the store."""
        return needs(self.graph, self.steps, self.execution)


def plan_json(view: PlanView) -> dict[str, Any]:
    """Everything as data: artifacts with their costs, the sum, each of several targets, needs."""
    wanted_by = _recipes_by_node(view.graph)
    artifacts = [
        {
            "stage": step.artifact.stage.name,
            "address": step.artifact.identity.address,
            "fingerprint": step.artifact.identity.fingerprint,
            "action": step.action,
            "reason": step.reason,
            "recipes": wanted_by.get(step.artifact, []),
            "cost": asdict(view.costs[step.artifact]),
        }
        for step in view.steps
    ]
    return {
        "target": view.target,
        "scale": view.scale,
        "missing": view.graph.missing,
        "artifacts": artifacts,
        "to_run": asdict(view.sum_of(view.to_run)),
        "targets": _targets(view) if len(view.parts) > 1 else [],
        "needs": [asdict(need) for need in view.needs()],
    }


def print_plan(view: PlanView, everything: bool) -> None:
    """Print a plan: of one target each artifact or group, of several a line for each target (all with `everything`)."""
    from rich.console import Console

    console = Console()
    several = len(view.parts) > 1
    if everything or not several:
        console.print(_artifacts(view))
    if several:
        console.print(_summary(view))
    counts = Counter(step.action for step in view.steps)
    console.print(f"{counts['run']} to run, {counts['reuse']} to reuse, {counts['wait']} to wait for")
    for line in _summary_lines(view):
        console.print(line, markup=False, highlight=False)
    wanted = view.needs()
    fetched = [need.name for need in wanted if need.status == "fetch"]
    if fetched:
        console.print(f"to be fetched from the hub: {', '.join(fetched)}", markup=False, highlight=False)
    for need in wanted:
        if need.status == "missing":
            what = need.detail if need.detail.startswith(need.name) else f"{need.kind} {need.name}, {need.detail}"
            console.print(f"missing: {what}", style="bold red", markup=False, highlight=False)


def _summary_lines(view: PlanView) -> list[str]:
    """The sum in words; what is not known is named."""
    total, lines = view.sum_of(view.to_run), []
    if total.gpu_hours is not None:
        lines.append(f"GPU-hours: {total.gpu_hours:,.0f} on {GPU} (how they are estimated: docs/plan.md)")
    if total.lacks:
        lines.append("no GPU-hours for: " + ", ".join(f"{what} ({n})" for what, n in total.lacks.items()))
    if total.disk_bytes or total.no_disk:
        passing = f", and {_bytes(total.passing_bytes)} beside them while one trains" if total.passing_bytes else ""
        absent = ", ".join(f"{stage} ({n})" for stage, n in total.no_disk.items())
        left_out = f"; without {absent}, whose size is not known" if absent else ""
        lines.append(f"disk: {_bytes(total.disk_bytes)}{passing}{left_out}")
    if total.memory_bytes is not None:
        lines.append(f"memory: {_bytes(total.memory_bytes)} at most on each of {view.execution.processes} GPUs")
    return lines


def _targets(view: PlanView) -> list[dict[str, Any]]:
    """One entry a target: alone, and what it adds to those before it."""
    runs, seen, entries = set(view.to_run), set[Artifact](), []
    for part in view.parts:
        wanted = set(part.graph.artifacts)
        mine = [node for node in part.graph.artifacts if node in runs]
        added = [node for node in mine if node not in seen]
        seen.update(mine)
        entries.append(
            {
                "target": part.name,
                "run": len(mine),
                "reuse": sum(step.action == "reuse" for step in view.steps if step.artifact in wanted),
                "trained": sum(node.stage.name == "train" for node in mine),
                "trained_added": sum(node.stage.name == "train" for node in added),
                "to_run": asdict(view.sum_of(mine)),
                "added": asdict(view.sum_of(added)),
            }
        )
    return entries


def _summary(view: PlanView) -> Any:
    """A line for each target, what it takes alone, and the sum, in which what they share counts once."""
    from rich.table import Table

    table = Table(title=_title(view), title_justify="left")
    table.add_column("target", no_wrap=True)
    for heading in ("run", "reuse", "train (new)", f"{GPU} hours", "disk"):
        table.add_column(heading, justify="right", no_wrap=heading == "disk")

    def row(name: str, run: int, reuse: int, trained: str, cost: dict[str, Any]) -> None:
        table.add_row(name, str(run), str(reuse), trained, _hours(cost["gpu_hours"]), _bytes(cost["disk_bytes"]))

    for entry in _targets(view):
        trained = f"{entry['trained']} ({entry['trained_added']})"
        row(entry["target"], entry["run"], entry["reuse"], trained, entry["to_run"])
    actions = Counter(step.action for step in view.steps)
    trained = str(sum(node.stage.name == "train" for node in view.to_run))
    table.add_section()
    row("shared once", actions["run"], actions["reuse"], trained, asdict(view.sum_of(view.to_run)))
    return table


def _title(view: PlanView) -> str:
    return f"{view.target} at scale {view.scale}, store {view.store.root}"


def _hours(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _artifacts(view: PlanView) -> Any:
    """Evaluations and prepared prompts are summed up, everything else is named."""
    from rich.table import Table

    wanted_by, costs = _recipes_by_node(view.graph), view.costs
    timed = any(cost.gpu_hours is not None for cost in costs.values())
    table = Table(title=_title(view), title_justify="left")
    for heading in ("stage", "artifact", "action", "reason", *([f"{GPU} hours"] if timed else []), "for"):
        table.add_column(heading, overflow="fold")
    for (stage, _), members in groupby(view.steps, key=_summary_key):
        group = list(members)
        named = len(group) == 1 and stage not in ("prepare", "evaluate")
        for action, reason in dict.fromkeys((step.action, step.reason) for step in group):
            same = [step for step in group if (step.action, step.reason) == (action, reason)]
            what = group[0].artifact.identity.address.partition("/")[2] if named else f"{len(same)} {_benchmarks(same)}"
            hours = view.sum_of([step.artifact for step in same if step.action == "run"]).gpu_hours
            recipes = _short(wanted_by.get(same[0].artifact, []), view.graph)
            table.add_row(stage, what, action, reason, *([_hours(hours)] if timed else []), recipes)
    return table


def _summary_key(step: PlanEntry) -> tuple[str, str]:
    if step.artifact.stage.name == "evaluate":
        return "evaluate", step.artifact.identity.name.partition("--")[0]
    if step.artifact.stage.name == "prepare":
        return "prepare", step.artifact.identity.name.partition("-")[0]
    return step.artifact.stage.name, step.artifact.identity.fingerprint


def _benchmarks(steps: list[PlanEntry]) -> str:
    stages = [step.artifact.stage for step in steps]
    counts = Counter(stage.unit.benchmark for stage in stages if isinstance(stage, UnitStage))
    return "units (" + ", ".join(f"{name} {count}" for name, count in counts.items()) + ")"


def _recipes_by_node(graph: Graph) -> dict[Artifact, list[str]]:
    """The recipes that need each artifact, as Graph.wanted_by names them, for all at once."""
    return {node: graph.wanted_by(node) for node in graph.artifacts}


def _short(names: list[str], graph: Graph) -> str:
    """Their rows' names; of very many the first and how many more."""
    if len(names) == len(graph.evaluations):
        return "all"
    rows = [name.partition("/")[2] for name in names]
    return (
        ", ".join(rows) if len(rows) <= _NAMED else f"{', '.join(rows[: _NAMED - 1])} and {len(rows) - _NAMED + 1} more"
    )


_NAMED = 8


def _bytes(value: float) -> str:
    """In the unit that leaves one to three digits."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"
