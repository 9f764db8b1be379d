"""Run a plan in this process, without Prefect: the same stages, store, leases and records as the flows'."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from tokenweight.evaluation.stages import Evaluate
from tokenweight.gpus import chosen_gpus
from tokenweight.pipeline import Store
from tokenweight.pipeline.locks import in_use
from tokenweight.pipeline.make import made as make
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Note
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.evaluate import evaluate_units


def run_here(graph: Graph, store: Store, execution: Execution, progress: Progress, note: Note) -> list[PlanEntry]:
    """Make what a graph's recipes need and the store does not hold; returns the plan that was followed.

    A checkpoint is loaded once for all its units.
    """
    with in_use(store.root, note):
        plan = schedule(graph, store)
        waiting = [step.artifact for step in plan if step.action != "reuse"]
        with chosen_gpus(execution, {node.stage.name for node in waiting}, note):
            _run(waiting, store, execution, progress, note)
    return plan


def _run(waiting: list[Artifact], store: Store, execution: Execution, progress: Progress, note: Note) -> None:
    made = [node for node in waiting if not isinstance(node.stage, Evaluate)]
    for done, node in enumerate(made, start=1):
        make(node, store, execution, progress, note)
        progress(done, len(made), "artifacts to prepare")
    evaluated = [node for node in waiting if isinstance(node.stage, Evaluate)]
    by_benchmark = Counter(node.stage.unit.benchmark for node in evaluated if isinstance(node.stage, Evaluate))
    note(f"{len(evaluated)} units to evaluate: {', '.join(f'{name} {n}' for name, n in by_benchmark.items())}")
    for _, nodes in groupby(evaluated, key=_checkpoint):
        evaluate_units(list(nodes), store, execution, progress, note)


def _checkpoint(node: Artifact) -> tuple[str, int, str]:
    """What is evaluated together: a benchmark of a checkpoint with a context."""
    if not isinstance(node.stage, Evaluate):
        raise TypeError(f"{node.identity.address} is not an evaluation")
    return node.inputs["checkpoint"].fingerprint, node.stage.context_tokens, node.stage.unit.benchmark
