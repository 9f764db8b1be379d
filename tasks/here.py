"""Run a plan in this process, without Prefect: the same stages, store, leases and records as the flows'."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from tokenweight.gpus import chosen_gpus
from tokenweight.pipeline import Store
from tokenweight.pipeline.locks import in_use
from tokenweight.pipeline.store import Note
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import Step, schedule
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.stages import EvaluateWork, Node
from tokenweight.tasks.evaluate import evaluate_units
from tokenweight.tasks.work import maker


def run_here(graph: Graph, store: Store, execution: Execution, progress: Progress, note: Note) -> list[Step]:
    """Make what a graph's recipes need and the store does not hold; returns the plan that was followed.

    A checkpoint is loaded once for all its units.
    """
    with in_use(store.root, note):
        plan = schedule(graph, store)
        waiting = [step.node for step in plan if step.action != "reuse"]
        with chosen_gpus(execution, {node.stage for node in waiting}, note):
            _run(waiting, store, execution, progress, note)
    return plan


def _run(waiting: list[Node], store: Store, execution: Execution, progress: Progress, note: Note) -> None:
    made = [node for node in waiting if not isinstance(node.work, EvaluateWork)]
    for done, node in enumerate(made, start=1):
        store.get_or_build(node.identity, maker(node, store, execution, progress), note=note)
        progress(done, len(made), "artifacts to prepare")
    evaluated = [node for node in waiting if isinstance(node.work, EvaluateWork)]
    by_benchmark = Counter(node.work.unit.benchmark for node in evaluated if isinstance(node.work, EvaluateWork))
    note(f"{len(evaluated)} units to evaluate: {', '.join(f'{name} {n}' for name, n in by_benchmark.items())}")
    for _, nodes in groupby(evaluated, key=_checkpoint):
        evaluate_units(list(nodes), store, execution, progress, note)


def _checkpoint(node: Node) -> tuple[str, int]:
    """What is loaded at once: a checkpoint with a context."""
    if not isinstance(node.work, EvaluateWork):
        raise TypeError(f"{node.identity.address} is not an evaluation")
    return node.work.checkpoint.fingerprint, node.work.context_tokens
