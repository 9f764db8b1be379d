"""The command `tokenweight reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from tokenweight import embedded
from tokenweight.commands.options import (
    RESULTS,
    STORE,
    DeviceOption,
    ExecutionOption,
    FiguresOption,
    LauncherOption,
    OutOption,
    ProcessesOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
    TargetArgument,
    open_store,
    with_inputs,
)
from tokenweight.commands.showing import show
from tokenweight.errors import UserError
from tokenweight.recipes.inputs import Inputs


@with_inputs
def reproduce(
    target: TargetArgument,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    launcher: LauncherOption = None,
    processes: ProcessesOption = None,
    device: DeviceOption = None,
    execution: ExecutionOption = None,
    figures: FiguresOption = True,
) -> None:
    """Run what a target needs and is not in the store, and write its table."""
    from tokenweight.planning import check_checkpoints, check_execution, check_inputs, check_texts, schedule
    from tokenweight.recipes.execution import execution_for
    from tokenweight.tasks.collect import collect, plan_targets

    place = open_store(store)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    for line in left_out:
        typer.echo(line, err=True)
    for planned in wanted:
        check_inputs(planned.graph)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    plans = [schedule(planned.graph, place) for planned in wanted]
    if any(step.action != "reuse" for steps in plans for step in steps):
        chosen = execution_for(scale, execution or (), launcher=launcher, processes=processes, device=device)
        for steps in plans:
            check_execution(steps, chosen)
            check_checkpoints(steps, place, chosen)
        check_texts(step for steps in plans for step in steps)
        _run_flow(
            target=target,
            scale=scale,
            seeds=seeds,
            store=str(place.root),
            out=str(out),
            launcher=launcher,
            processes=processes,
            device=device,
            execution=execution,
            figures=False,  # drawn below
            **{**inputs.model_dump(), "settings": list(inputs.settings)},
        )
    else:
        artifacts = {node for planned in wanted for node in planned.graph.nodes}
        typer.echo(f"All {len(artifacts)} artifacts of {target} ({scale}) are in the store: nothing to run.")
    for planned in wanted:
        report, files = collect(planned, place, out.expanduser().resolve(), figures=figures)
        show(report, files)


def _run_flow(**parameters: Any) -> None:
    embedded.prepare(Path(parameters["store"]))
    from tokenweight.flows.console import leave_errors_to_caller
    from tokenweight.flows.reproduce import reproduce as reproduce_flow

    leave_errors_to_caller()
    embedded.end_at_signal()
    reproduce_flow(**parameters)
