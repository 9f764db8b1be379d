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
from tokenweight.planning.cost_model import GPUS
from tokenweight.planning.costs import against_the_paper
from tokenweight.planning.costs import gpu_hours as papers_hours
from tokenweight.planning.graph import Graph, union
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.planning.requirements import Need, needs
from tokenweight.planning.stage_costs import StageCost, Sum, stage_cost, summed
from tokenweight.recipes.schema import Execution, Recipe


@dataclass(frozen=True)
class TargetPart:
    """One of several targets: its plan, its recipes, and how often each is trained."""

    name: str
    graph: Graph
    recipes: Sequence[Recipe]
    seeds: int


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


def plan_json(view: PlanView, rate: float | None) -> dict[str, Any]:
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
    total = view.sum_of(view.to_run)
    return {
        "target": view.target,
        "scale": view.scale,
        "missing": view.graph.missing,
        "artifacts": artifacts,
        "to_run": asdict(total),
        "price": {gpu: round(rate * hours, 2) for gpu, hours in total.gpu_hours.items()} if rate is not None else None,
        "paper_hours": {what: {"paper": paper, "model": model} for what, (paper, model) in against_the_paper().items()}
        if view.scale == "paper"
        else None,
        "targets": _targets(view) if len(view.parts) > 1 else [],
        "needs": [asdict(need) for need in view.needs()],
    }


def print_plan(view: PlanView, rate: float | None, everything: bool) -> None:
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
    about = _about_the_paper(view) if several and view.scale == "paper" else []
    for line in [*_told(view, rate), *about]:
        console.print(line, markup=False, highlight=False)
    wanted = view.needs()
    fetched = [need.name for need in wanted if need.status == "fetch"]
    if fetched:
        console.print(f"to be fetched from the hub: {', '.join(fetched)}", markup=False, highlight=False)
    for need in wanted:
        if need.status == "missing":
            told = need.detail if need.detail.startswith(need.name) else f"{need.kind} {need.name}, {need.detail}"
            console.print(f"missing: {told}", style="bold red", markup=False, highlight=False)


def _told(view: PlanView, rate: float | None) -> list[str]:
    """The sum in words; what is not known is named."""
    total, lines = view.sum_of(view.to_run), []
    if total.flops:
        lines.append(f"computing: {total.flops:.1e} FLOPs of models, without recomputation and evaluation")
    if total.gpu_hours:
        hours = ", ".join(f"{total.gpu_hours[gpu]:,.0f} on {gpu}" for gpu in GPUS)
        lines.append(f"GPU-hours: {hours} (model and its errors: docs/plan.md)")
        if rate is not None:
            prices = ", ".join(f"{rate * total.gpu_hours[gpu]:,.0f} on {gpu}" for gpu in GPUS)
            lines.append(f"price at {rate:g} a GPU-hour: {prices}")
    elif rate is not None:
        lines.append("price: no GPU-hours are known")
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
    """One entry a target: alone, what it adds to those before it, and the paper's own GPU-hours."""
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
                "gpu_hours_paper": _papers(part.recipes, part.seeds) if view.scale == "paper" else None,
            }
        )
    return entries


def _papers(recipes: Sequence[Recipe], seeds: int = 1) -> dict[str, Any] | None:
    """The paper's own GPU-hours for recipes, on A100; None where they are of other models than the paper's."""
    try:
        hours = papers_hours(recipes, seeds)
    except KeyError:
        return None
    return {"hours": hours.paper, "without": list(hours.left_out)}


def _summary(view: PlanView) -> Any:
    """A line for each target, what it takes alone, and the sum, in which what they share counts once."""
    from rich.table import Table

    total, paper = view.sum_of(view.to_run), view.scale == "paper"
    gpus = [gpu for gpu in GPUS if gpu in total.gpu_hours]
    table = Table(title=f"{view.target} at scale {view.scale}, store {view.store.root}", title_justify="left")
    table.add_column("target", no_wrap=True)
    hours = [*(f"{gpu} h" for gpu in gpus), *(["paper, A100 h"] if paper else [])]
    for heading in ("run", "reuse", "train (new)", *hours, "disk"):
        table.add_column(heading, justify="right", no_wrap=heading == "disk")

    def row(name: str, counts: tuple[str, ...], cost: dict[str, Any], papers: dict[str, Any] | None) -> None:
        told = [f"{cost['gpu_hours'][gpu]:,.0f}" if gpu in cost["gpu_hours"] else "-" for gpu in gpus]
        if paper:
            more = "+" if papers and papers["without"] else ""
            told.append(f"{papers['hours']:,.0f}{more}" if papers else "-")
        table.add_row(name, *counts, *told, _bytes(cost["disk_bytes"]))

    for entry in _targets(view):
        trained = f"{entry['trained']} ({entry['trained_added']})"
        counts = (str(entry["run"]), str(entry["reuse"]), trained)
        row(entry["target"], counts, entry["to_run"], entry["gpu_hours_paper"])
    actions = [step.action for step in view.steps]
    trained = str(sum(node.stage.name == "train" for node in view.to_run))
    recipes = [recipe for part in view.parts for recipe in part.recipes]
    papers = _papers(recipes, max(part.seeds for part in view.parts)) if paper else None
    table.add_section()
    row("shared once", (str(actions.count("run")), str(actions.count("reuse")), trained), asdict(total), papers)
    return table


def _about_the_paper(view: PlanView) -> list[str]:
    """What the paper's hours are, and how near the model comes to them."""
    without = {name for entry in _targets(view) for name in (entry["gpu_hours_paper"] or {}).get("without", ())}
    left_out = f"; +: without scoring by {', '.join(sorted(without))}" if without else ""
    pairs = ", ".join(f"{what} {printed:g} ({model:.1f})" for what, (printed, model) in against_the_paper().items())
    return [
        f"paper, A100 h: its own GPU-hours of training and of scoring all of PG-19 (Appendix B){left_out}",
        f"its hours on 8 A100 (the model's, as the paper trains): {pairs}",
    ]


def _artifacts(view: PlanView) -> Any:
    """Evaluations and prepared prompts are summed up, everything else is named."""
    from rich.table import Table

    wanted_by, costs = _recipes_by_node(view.graph), view.costs
    timed = any(cost.gpu_hours for cost in costs.values())
    table = Table(title=f"{view.target} at scale {view.scale}, store {view.store.root}", title_justify="left")
    for heading in ("stage", "artifact", "action", "reason", *([f"{GPUS[0]} h"] if timed else []), "for"):
        table.add_column(heading, overflow="fold")
    for (stage, _), members in groupby(view.steps, key=_summary_key):
        group = list(members)
        named = len(group) == 1 and stage not in ("prepare", "evaluate")
        for action, reason in dict.fromkeys((step.action, step.reason) for step in group):
            same = [step for step in group if (step.action, step.reason) == (action, reason)]
            what = group[0].artifact.identity.address.partition("/")[2] if named else f"{len(same)} {_benchmarks(same)}"
            hours = costs[same[0].artifact].gpu_hours.get(GPUS[0]) if named else None
            told = [f"{hours:,.0f}" if hours is not None else "-"] if timed else []
            table.add_row(stage, what, action, reason, *told, _short(wanted_by.get(same[0].artifact, []), view.graph))
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
