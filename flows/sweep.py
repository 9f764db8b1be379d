"""Sweeps: each member trained and evaluated, one after the other or as flow runs of their own; one table at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from prefect import flow, runtime
from prefect.logging import get_run_logger
from pydantic import Field

from tokenweight.errors import StageError
from tokenweight.flat import flat
from tokenweight.flows.members import MOST_AT_ONCE, cancel_members, run_here, run_in_pool
from tokenweight.flows.reproduce import store_at
from tokenweight.flows.run import run_graph
from tokenweight.pipeline import Store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    RESULTS,
    STORE,
    Choices,
    ExecutionOption,
    FiguresOption,
    MeasuresOption,
    MembersOption,
    OutOption,
    OverOption,
    RecipesOption,
    ScaleOption,
    StoreOption,
    SweepNameOption,
)
from tokenweight.recipes.schema import Scale
from tokenweight.tasks.publish import publish
from tokenweight.tasks.sweep import SHARED, PlannedSweep, check, chosen_measures, collect_sweep, plan_sweep


def _planned(
    recipes: list[str],
    over: tuple[str, ...],
    members: tuple[str, ...],
    measures: str | None,
    name: str | None,
    scale: Scale,
    inputs: Inputs,
    place: Store,
) -> PlannedSweep:
    """The plan; each member's recipe is checked."""
    return plan_sweep(recipes, over, members, scale, inputs, name or None, chosen_measures(measures), place)


@flow(name="sweep-member", flow_run_name="{sweep} {scale}: {member}", persist_result=False)
@flat
def sweep_member(
    sweep: Annotated[str, Field(description="The sweep's name")],
    *,
    member: Annotated[str, Field(description=f'Label of the member, for example kappa=0.2 seed=1; or "{SHARED}"')],
    recipes: RecipesOption,
    over: OverOption = (),
    members: MembersOption = (),
    measures: MeasuresOption = None,
    scale: ScaleOption = "smoke",
    store: StoreOption = STORE,
    inputs: Inputs,
    choices: Choices,
    execution: ExecutionOption = (),
) -> None:
    """Train and evaluate one member of a sweep, or make what several members need; finished stages are reused."""
    place = store_at(store)
    planned = _planned(recipes, over, members, measures, sweep, scale, inputs, place)
    run_graph(planned.graph_of(member, place), place, execution_for(scale, execution, **choices)).raise_failures()


def _run_name() -> str:
    """`sweep table-3/frozen-sparse weighting.kappa=0.2,0.4 smoke`, or the sweep's own name and the scale."""
    given = runtime.flow_run.parameters
    name = given["name"] or " ".join(["sweep", *given["recipes"], *given["over"], *given["members"]])
    return f"{name} {given['scale']}"


@flow(name="sweep", flow_run_name=_run_name, persist_result=False, on_cancellation=[cancel_members])
@flat
def sweep(
    recipes: RecipesOption,
    *,
    over: OverOption = (),
    members: MembersOption = (),
    measures: MeasuresOption = None,
    name: SweepNameOption = None,
    pool: Annotated[
        str | None, Field(description="Work pool in which each member is a flow run. Default: all in this flow run")
    ] = None,
    at_once: Annotated[
        int, Field(ge=1, le=MOST_AT_ONCE, description="Number of members that run in the pool at the same time")
    ] = 4,
    scale: ScaleOption = "smoke",
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    inputs: Inputs,
    choices: Choices,
    execution: ExecutionOption = (),
    figures: FiguresOption = True,
) -> dict[str, str]:
    """Train and evaluate every member that the store does not hold, and write one table and one figure.

    A member that fails does not stop the others; the run then ends as failed, after the table is written.
    """
    place, directory, logger = store_at(store), Path(out).expanduser().resolve(), get_run_logger()
    planned = _planned(recipes, over, members, measures, name, scale, inputs, place)
    # In a pool this machine trains nothing, so that its GPUs do not count.
    check(planned, place, (planned_execution if pool else execution_for)(scale, execution, **choices))
    waiting = [label for label in planned.runs if planned.to_make(label, place)]
    logger.info(
        "%s: %d members, %d runs, %d of them to do",
        planned.name,
        len(planned.resolved.recipes),
        len(planned.runs),
        len(waiting),
    )
    common = {"scale": scale, "store": str(place.root), **inputs.model_dump(), **choices, "execution": execution}
    given = {"recipes": recipes, "over": over, "members": members, "measures": measures}
    parameters: dict[str, Any] = {"sweep": planned.name, **given, **common}
    if pool:
        failed = run_in_pool(planned, place, waiting, parameters, pool, at_once)
    else:
        failed = run_here(sweep_member, waiting, parameters)
    report, files = collect_sweep(planned, place, directory, failed, figures)
    behind = {
        recipe: node.identity for recipe, node in planned.graph.trained.items() if place.path(node.identity).is_dir()
    }
    publish(f"{report.target}-{report.scale}", f"{report.title} at scale {report.scale}", files, place, behind)
    if failed:
        labels = {reason: [label for label, why in failed.items() if why == reason] for reason in failed.values()}
        reasons = "; ".join(f"{', '.join(members)}: {reason}" for reason, members in labels.items())
        raise StageError(
            f"{len(failed)} of {len(planned.runs)} runs failed: {reasons}; the table has the others, "
            "the same command makes what is missing"
        )
    return {kind: str(path) for kind, path in files.items()}
