"""From a plan to Prefect task runs: the wiring that all flows share."""

from __future__ import annotations

from itertools import groupby

from prefect.logging import get_run_logger

from tokenweight.evaluation.stages import Evaluate, Prepare
from tokenweight.gpus import chosen_gpus
from tokenweight.pipeline import Store
from tokenweight.pipeline.locks import in_use
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import PlanEntry, check_checkpoints, check_execution, check_inputs, schedule
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.gpus import gpus_held
from tokenweight.tasks.parent import end_with_the_server_of_runs
from tokenweight.tasks.stages import Batch, task_of


def run_graph(graph: Graph, store: Store, execution: Execution) -> list[PlanEntry]:
    """Make what a graph's recipes need and the store does not hold; returns the plan that was followed."""
    end_with_the_server_of_runs()
    with in_use(store.root, get_run_logger().info):
        return _run(graph, store, execution)


def _run(graph: Graph, store: Store, execution: Execution) -> list[PlanEntry]:
    check_inputs(graph)
    plan = schedule(graph, store)
    check_execution(plan, execution)
    check_checkpoints(plan, store, execution)
    waiting = [step.artifact for step in plan if step.action != "reuse"]
    with chosen_gpus(execution, {node.stage.name for node in waiting}, get_run_logger().info):
        for (stage, label), nodes in groupby(waiting, key=lambda node: (node.stage.name, group_label(node, graph))):
            members = list(nodes)
            with gpus_held(stage, execution, get_run_logger().info):
                task_of(stage)(label, Batch(members, store, execution), return_state=True).result()
    return plan


def group_label(node: Artifact, graph: Graph) -> str:
    """Which task run an artifact belongs to, e.g. `train table-3/uniform` or `evaluate table-3/uniform ruler`."""
    stage = node.stage
    if isinstance(stage, Evaluate):
        return f"evaluate {_owner(node, graph)} {stage.unit.benchmark}"
    if isinstance(stage, Prepare):
        return f"prepare {stage.unit.benchmark} {stage.context_tokens or ''}".rstrip()
    if stage.name in ("train", "extend"):
        return f"{stage.name} {_owner(node, graph)}"
    return f"{stage.name} {node.name}"


def _owner(node: Artifact, graph: Graph) -> str:
    """The first recipe that needs an artifact."""
    return graph.wanted_by(node)[0]
