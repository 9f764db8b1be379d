"""The command `tokenweight reproduce`."""

from __future__ import annotations

from tokenweight.commands.command import command
from tokenweight.commands.options import open_store, results_directory, run_flow
from tokenweight.commands.showing import note, show, show_files
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
    if all(step.action == "reuse" for steps in plans for step in steps):
        artifacts = {node for planned in wanted for node in planned.graph.artifacts}
        print(f"All {len(artifacts)} artifacts of {experiment} ({scale}) are in the store: nothing to run.")
        for planned in wanted:
            show(*collect(planned, place, directory, figures=figures))
        return
    chosen = execution_for(scale, execution, **choices)
    check_before_running([planned.graph for planned in wanted], place, chosen, plans)
    written = run_flow(
        place.root,
        "reproduce:reproduce",
        experiment=experiment,
        scale=scale,
        seeds=seeds,
        store=place.root,
        out=out,
        execution=execution,
        figures=figures,
        **choices,
        **inputs.model_dump(),
    )
    for files in written.values():
        show_files(files)
