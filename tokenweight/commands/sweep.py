"""`tokenweight sweep`: recipes with other values of their fields, side by side in one table and one figure."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.commands.options import results_directory
from tokenweight.commands.reproduce import pool_of
from tokenweight.commands.showing import show
from tokenweight.errors import UserError
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import Choices, ExecutionOption, RunOptions, ScaleOption

MEASURES = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "planted")


@command
def sweep(
    recipes: Annotated[list[str], Field(description="Recipes, for example table-3/frozen-sparse")],
    /,
    *,
    inputs: Inputs,
    over: Annotated[
        tuple[str, ...],
        Field(
            description="field=value,value, for example weighting.kappa=0.2,0.4; repeat for more fields: rows are the product"
        ),
    ] = (),
    members: Annotated[
        tuple[str, ...],
        Field(description="In place of --over: 'field=value field=value' for each row; repeat for more rows"),
    ] = (),
    measures: Annotated[
        str | None, Field(description=f"Comma-separated benchmarks of {','.join(MEASURES)}. Default: the first three")
    ] = None,
    name: Annotated[
        str | None, Field(description="Name of the files and runs. Default: made of the recipe and the fields")
    ] = None,
    scale: ScaleOption = "smoke",
    dry_run: Annotated[bool, Field(description="Show what would run and why; run nothing")] = False,
    report_only: Annotated[
        bool, Field(description="Write the table and figure from what is in the store; run nothing")
    ] = False,
    options: RunOptions,
    choices: Choices,
    execution: ExecutionOption = (),
) -> None:
    """A user's experiment that is written on the command line."""
    from tokenweight.planning.experiments import plan_experiment
    from tokenweight.planning.plan import check_before_running
    from tokenweight.planning.view import PlanView, TargetPart, print_plan
    from tokenweight.recipes.recipe import chosen_names
    from tokenweight.reports.targets.find import find_experiments
    from tokenweight.reports.targets.schema import SWEPT_ON
    from tokenweight.reports.targets.typed import sweep_experiment
    from tokenweight.tasks.experiments import write_tables

    if dry_run and report_only:
        raise UserError("--dry-run: does not go with --report-only; leave one out")
    place = open_store(options.store)
    benchmarks = chosen_names("--measures", measures, MEASURES) if measures else SWEPT_ON
    user = sweep_experiment(recipes, over, members, benchmarks, name)
    (resolved,), _ = find_experiments([user], scale, inputs)
    planned = plan_experiment(resolved, place)
    planned_there = partial(planned_execution, planned.like, execution, **choices)
    if report_only:
        show(*write_tables(planned, place, results_directory(options.out), options.figures))
    elif dry_run:
        chosen, part = planned_there(), TargetPart(planned.name, planned.graph)
        print_plan(PlanView.of(planned.name, scale, [part], [], place, chosen), everything=False)
        check_before_running([planned.graph], place, chosen)
    else:
        chosen_here = partial(execution_for, planned.like, execution, **choices)
        text = user.model_dump_json(indent=1, exclude_defaults=True)
        given = {"scale": scale, "execution": execution, **choices, **inputs.model_dump()}
        execution_of = planned_there if options.pool else chosen_here
        make_and_show([planned], place, options, execution_of, pool=pool_of(options, [text], given))
