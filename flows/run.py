"""From a plan to Prefect task runs: the wiring that all flows share."""

from __future__ import annotations

from itertools import groupby

from prefect.logging import get_run_logger

from tokenweight.gpus import chosen_gpus
from tokenweight.pipeline import Store
from tokenweight.pipeline.locks import in_use
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import Step, check_checkpoints, check_execution, check_inputs, schedule
from tokenweight.recipes.schema import Execution
from tokenweight.stages import EvaluateWork, Node, PrepareWork
from tokenweight.tasks.gpus import gpus_held
from tokenweight.tasks.stages import Batch, task_of


def run_graph(graph: Graph, store: Store, execution: Execution) -> list[Step]:
    """Make what a graph's recipes need and the store does not hold; returns the plan that was followed."""
    with in_use(store.root, get_run_logger().info):
        return _run(graph, store, execution)


def _run(graph: Graph, store: Store, execution: Execution) -> list[Step]:
    check_inputs(graph)
    plan = schedule(graph, store)
    check_execution(plan, execution)
    check_checkpoints(plan, store, execution)
    waiting = [step.node for step in plan if step.action != "reuse"]
    with chosen_gpus(execution, {node.stage for node in waiting}, get_run_logger().info):
        for (stage, label), nodes in groupby(waiting, key=lambda node: (node.stage, group_label(node, graph))):
            members = list(nodes)
            with gpus_held(stage, execution, get_run_logger().info):
                task_of(stage)(label, Batch(members, store, execution), return_state=True).result()
    return plan


def group_label(node: Node, graph: Graph) -> str:
    """Which task run an artifact belongs to, e.g. `train table-3/uniform` or `evaluate table-3/uniform ruler`."""
    if isinstance(node.work, EvaluateWork):
        return f"evaluate {_owner(node, graph)} {node.work.unit.benchmark}"
    if isinstance(node.work, PrepareWork):
        return f"prepare {node.work.unit.benchmark} {node.work.context_tokens}"
    if node.stage in ("train", "extend"):
        return f"{node.stage} {_owner(node, graph)}"
    return f"{node.stage} {node.identity.name}"


def _owner(node: Node, graph: Graph) -> str:
    """The first recipe that needs an artifact."""
    return graph.wanted_by(node)[0]
