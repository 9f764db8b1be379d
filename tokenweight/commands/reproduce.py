"""The command `tokenweight reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight import embedded
from tokenweight.commands.command import command
from tokenweight.commands.options import open_store, results_directory
from tokenweight.commands.showing import note, show
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

if TYPE_CHECKING:
    from tokenweight.pipeline import Store
    from tokenweight.recipes.schema import Execution
    from tokenweight.reports.model import Report
    from tokenweight.tasks.collect import Planned


@command
def reproduce(
    experiment: ExperimentOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    choices: Choices,
    execution: ExecutionOption = (),
    figures: FiguresOption = True,
) -> None:
    """Run what is missing and write the table."""
    from tokenweight.planning.plan import check_before_running, check_inputs, schedule
    from tokenweight.recipes.execution import execution_for
    from tokenweight.tasks.collect import collect, plan_targets

    place, directory = open_store(store), results_directory(out)
    wanted, left_out = plan_targets(experiment, scale, inputs, place, seeds)
    note(*left_out)
    for planned in wanted:
        check_inputs(planned.graph)
    plans = [schedule(planned.graph, place) for planned in wanted]
    if any(step.action != "reuse" for steps in plans for step in steps):
        chosen = execution_for(scale, execution, **choices)
        check_before_running([planned.graph for planned in wanted], place, chosen, plans)
        made = _run_flow(
            wanted,
            place,
            chosen,
            target=experiment,
            scale=scale,
            seeds=seeds,
            store=str(place.root),
            out=str(out),
            execution=execution,
            figures=figures,
            **choices,
            **inputs.model_dump(),
        )
    else:
        artifacts = {node for planned in wanted for node in planned.graph.nodes}
        print(f"All {len(artifacts)} artifacts of {experiment} ({scale}) are in the store: nothing to run.")
        made = [collect(planned, place, directory, figures=figures) for planned in wanted]
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
