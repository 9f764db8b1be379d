"""A plain loop over a plan in this process, for scripts and notebooks; runs go through the flow (flows/run.py)."""

from __future__ import annotations

from tokenweight.pipeline import Store
from tokenweight.pipeline.make import made
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import schedule
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.evaluate import evaluate_units
from tokenweight.tasks.pieces import pieces_of


def run_in_order(graph: Graph, store: Store, execution: Execution, progress: Progress = no_progress) -> None:
    """Make what a graph's recipes need and the store does not hold, one piece after the other."""
    for piece in pieces_of([graph], [schedule(graph, store)]):
        if piece.stage == "evaluate":
            evaluate_units(piece.artifacts, store, execution, progress)
            continue
        for artifact in piece.artifacts:
            made(artifact, store, execution, progress, lambda message: None)
