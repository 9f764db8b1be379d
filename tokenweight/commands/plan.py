"""The command `tokenweight plan`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tokenweight.commands.options import (
    STORE,
    DeviceOption,
    ExecutionOption,
    JsonOption,
    LauncherOption,
    ProcessesOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
    TargetArgument,
    open_store,
    with_inputs,
)
from tokenweight.recipes.inputs import Inputs


@with_inputs
def plan(
    target: TargetArgument,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    as_json: JsonOption = False,
    launcher: LauncherOption = None,
    processes: ProcessesOption = None,
    device: DeviceOption = None,
    execution: ExecutionOption = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(min=0, help="Adds a price, in whatever currency the rate is.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Of several targets, each artifact too.")] = False,
) -> None:
    """Show each artifact that a target needs: run, reuse or wait, and why; what it costs and needs. Runs nothing."""
    from tokenweight.planning.plan import check_checkpoints, check_execution
    from tokenweight.planning.view import PlanView, TargetPart, plan_json, print_plan
    from tokenweight.recipes.execution import default_execution, planned_execution
    from tokenweight.tasks.collect import plan_targets

    place = open_store(store)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    parts = [
        TargetPart(each.target.name, each.graph, [loaded.recipe for loaded in each.recipes[: len(each.target.recipes)]],
                   each.seeds)
        for each in wanted
    ]  # fmt: skip
    given = launcher or processes or device or execution  # else the scale's own, which need not run on this machine
    chosen = default_execution(scale)
    if given:
        chosen = planned_execution(scale, execution or (), launcher=launcher, processes=processes, device=device)
    view = PlanView.of(target, scale, parts, left_out, place, chosen)
    if given:
        check_execution(view.steps, chosen)
    if as_json:
        typer.echo(json.dumps(plan_json(view, price_per_gpu_hour), indent=1))
    else:
        print_plan(view, price_per_gpu_hour, everything)
    check_checkpoints(view.steps, place, chosen)
