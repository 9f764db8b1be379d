"""The command `tokenweight reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from tokenweight.pipeline import Store
    from tokenweight.recipes.schema import Execution
    from tokenweight.reports.model import Report
    from tokenweight.tasks.collect import Planned


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
    from tokenweight.planning.plan import check_before_running, check_inputs, schedule
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
        check_before_running([planned.graph for planned in wanted], place, chosen, plans)
        made = _run_flow(
            wanted,
            place,
            chosen,
            target=target,
            scale=scale,
            seeds=seeds,
            store=str(place.root),
            out=str(out),
            launcher=launcher,
            processes=processes,
            device=device,
            execution=execution,
            figures=figures,
            **{**inputs.model_dump(), "settings": list(inputs.settings)},
        )
    else:
        artifacts = {node for planned in wanted for node in planned.graph.nodes}
        typer.echo(f"All {len(artifacts)} artifacts of {target} ({scale}) are in the store: nothing to run.")
        made = [collect(planned, place, out.expanduser().resolve(), figures=figures) for planned in wanted]
    for report, files in made:
        show(report, files)


def _run_flow(
    wanted: list[Planned], place: Store, how: Execution, *, target: str, **parameters: Any
) -> list[tuple[Report, dict[str, Path]]]:
    """Run the plans as the flow `reproduce`; the reports and files that it wrote."""
    embedded.prepare(place.root)
    from tokenweight.flows.console import leave_errors_to_caller
    from tokenweight.flows.reproduce import files_of, flow_of_plans
    from tokenweight.reports.model import Report

    leave_errors_to_caller()
    embedded.end_at_signal()
    written = flow_of_plans(wanted, place, how)(target=target, **parameters)
    files = [files_of(planned.target.name, target, written) for planned in wanted]
    return [(Report.model_validate_json(each["json"].read_text(encoding="utf-8")), each) for each in files]
