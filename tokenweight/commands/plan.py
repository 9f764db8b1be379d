"""The command `tokenweight plan`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    STORE,
    Choices,
    ExecutionOption,
    ExperimentsOption,
    JsonOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
)


@command
def plan(
    experiments: ExperimentsOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    as_json: JsonOption = False,
    choices: Choices,
    execution: ExecutionOption = (),
    everything: Annotated[
        bool, Field(description="List each artifact also where there are several experiments")
    ] = False,
) -> None:
    """What a run would do and cost; nothing is run."""
    from tokenweight.planning.plan import check_checkpoints, check_execution
    from tokenweight.planning.view import PlanView, TargetPart, plan_json, print_plan
    from tokenweight.recipes.execution import default_execution, planned_execution
    from tokenweight.tasks.experiments import plan_texts

    place = open_store(store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    parts = [TargetPart(each.name, each.graph) for each in wanted]
    like = wanted[0].like
    given = choices or execution  # else the scale's own, which need not run on this machine
    chosen = planned_execution(like, execution, **choices) if given else default_execution(like)
    view = PlanView.of(" ".join(experiments), scale, parts, left_out, place, chosen)
    if given:
        check_execution(view.steps, chosen)
    if as_json:
        print_json(plan_json(view))
    else:
        print_plan(view, everything)
    check_checkpoints(view.steps, place, chosen)
