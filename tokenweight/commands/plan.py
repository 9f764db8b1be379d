"""The command `tokenweight plan`."""

from __future__ import annotations

import json

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
) -> None:
    """Show each artifact that a target needs: run, reuse or wait, and why. Runs nothing."""
    from tokenweight.graph import union
    from tokenweight.plan_view import plan_rows, print_plan
    from tokenweight.planning import check_checkpoints, check_execution, schedule
    from tokenweight.recipes.execution import default_execution, planned_execution
    from tokenweight.tasks.collect import plan_targets

    place = open_store(store)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    graph = union(planned.graph for planned in wanted)
    graph.missing += left_out
    steps, chosen = schedule(graph, place), default_execution(scale)
    if launcher or processes or device or execution:  # else the scale's own, which need not run on this machine
        chosen = planned_execution(scale, execution or (), launcher=launcher, processes=processes, device=device)
        check_execution(steps, chosen)
    if as_json:
        content = {"target": target, "scale": scale, "missing": graph.missing}
        typer.echo(json.dumps({**content, "artifacts": plan_rows(graph, place)}, indent=1))
    else:
        print_plan(target, scale, graph, place)
    check_checkpoints(steps, place, chosen)
