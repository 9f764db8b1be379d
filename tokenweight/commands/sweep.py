"""`tokenweight sweep`: recipes with other values of their fields, side by side in one table and one figure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.options import open_store, results_directory, run_flow
from tokenweight.commands.showing import print_markdown, show, show_files
from tokenweight.errors import StageError, UserError
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


@command
def sweep(
    recipes: RecipesOption,
    /,
    *,
    inputs: Inputs,
    over: OverOption = (),
    members: MembersOption = (),
    measures: MeasuresOption = None,
    name: SweepNameOption = None,
    scale: ScaleOption = "smoke",
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    dry_run: Annotated[bool, Field(description="Show what would run and why; run nothing")] = False,
    report_only: Annotated[
        bool, Field(description="Write the table and figure from what is in the store; run nothing")
    ] = False,
    choices: Choices,
    execution: ExecutionOption = (),
    figures: FiguresOption = True,
) -> None:
    """Recipes with other values of their fields."""
    from tokenweight.recipes.execution import execution_for, planned_execution
    from tokenweight.tasks.sweep import check, chosen_measures, collect_sweep, plan_sweep

    if dry_run and report_only:
        raise UserError("--dry-run: does not go with --report-only; leave one out")
    directory = results_directory(out)
    benchmarks, place = chosen_measures(measures), open_store(store)
    planned = plan_sweep(recipes, over, members, scale, inputs, name, benchmarks, place)
    if dry_run:
        from tokenweight.planning.view import PlanView, TargetPart, print_plan

        chosen, named = planned_execution(scale, execution, **choices), planned.name
        part = TargetPart(named, planned.graph)
        print_plan(PlanView.of(named, scale, [part], [], place, chosen), everything=False)
        check(planned, place, chosen)
        return
    if not report_only:
        if check(planned, place, planned_execution(scale, execution, **choices)):
            execution_for(scale, execution, **choices)  # are its GPUs here?
            table = directory / scale / f"{planned.name}.md"
            table.unlink(missing_ok=True)  # what is printed shall be of this run
            try:
                files = run_flow(
                    place.root,
                    "sweep:sweep",
                    recipes=recipes,
                    over=over,
                    members=members,
                    measures=measures,
                    name=name,
                    scale=scale,
                    store=place.root,
                    out=out,
                    execution=execution,
                    figures=figures,
                    **choices,
                    **inputs.model_dump(),
                )
            except StageError:
                if table.is_file():
                    print_markdown(table.read_text())
                raise
            show_files(files)
            return
        print(f"All {len(planned.graph.artifacts)} artifacts of {planned.name} are in the store: nothing to run.")
    report, files = collect_sweep(planned, place, directory, figures=figures)
    show(report, files)
