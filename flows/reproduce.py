"""The flow `reproduce`: plan an experiment, run what is missing, collect its table. Deployments are parameters of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from tokenweight.errors import UserError
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.flat import flat
from tokenweight.flows.run import run_graph
from tokenweight.pipeline import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes import load
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    RESULTS,
    STORE,
    Choices,
    ExecutionOption,
    ExperimentOption,
    FiguresOption,
    OutOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
)
from tokenweight.tasks.collect import collect, plan_targets
from tokenweight.tasks.publish import publish


@flow(name="reproduce", flow_run_name="{experiment} {scale}", persist_result=False)
@flat
def reproduce(
    experiment: ExperimentOption,
    *,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    inputs: Inputs,
    choices: Choices,
    execution: ExecutionOption = (),
    figures: FiguresOption = True,
) -> dict[str, dict[str, str]]:
    """Reproduce an experiment: chunk, score, extend, train, evaluate, collect; finished stages are reused.

    Returns the paths of what is written, by experiment and kind.
    """
    place, logger = store_at(store), get_run_logger()
    how = execution_for(scale, execution, **choices)
    wanted, left_out = plan_targets(experiment, scale, inputs, place, seeds)
    for line in left_out:
        logger.warning(line)
    check_before_running([planned.graph for planned in wanted], place, how)
    written: dict[str, dict[str, str]] = {}
    for planned in wanted:
        name = planned.target.name
        outcome = run_graph(planned.graph, place, how)
        _, files = collect(planned, place, out.expanduser().resolve(), figures=figures)
        logger.info("%s: %d artifacts made, %d reused", name, outcome.made, outcome.reused)
        behind = {recipe: node.identity for recipe, node in planned.graph.trained.items()}
        publish(f"{name}-{scale}", f"{name} at scale {scale}", files, place, behind)
        outcome.raise_failures()  # the table of what is there has been written
        written[name] = {kind: str(path) for kind, path in files.items()}
    return written


@flow(name="train-and-evaluate", flow_run_name="{recipe} {scale}", persist_result=False)
@flat
def train_and_evaluate(
    recipe: Annotated[str, Field(description="A recipe, for example table-3/frozen-sparse")],
    *,
    scale: ScaleOption = "smoke",
    store: StoreOption = STORE,
    benchmarks: Annotated[list[str] | None, Field(description="Benchmarks. Default: all but phrase")] = None,
    inputs: Inputs,
    choices: Choices,
    execution: ExecutionOption = (),
) -> list[str]:
    """Train one recipe and evaluate it; returns the addresses of its evaluation artifacts."""
    place = store_at(store)
    unknown = sorted(set(benchmarks or ()) - set(BENCHMARKS))
    if unknown:
        raise UserError(f"benchmarks: {unknown[0]!r} is unknown; choose from {', '.join(BENCHMARKS)}")
    usual = tuple(name for name in BENCHMARKS if name != "phrase")  # needs a text of the user's own
    graph = Planner(place).graph([load(recipe, scale, inputs)], benchmarks or usual)
    run_graph(graph, place, execution_for(scale, execution, **choices)).raise_failures()
    return [node.identity.address for node in graph.evaluations[recipe]]


def store_at(path: Path) -> Store:
    """The store at a path, which need not exist yet."""
    return Store(path.expanduser().resolve())
