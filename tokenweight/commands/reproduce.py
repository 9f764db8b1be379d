"""The commands `tokenweight reproduce`, and `sweep` for an experiment that is written on the command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show, results_directory
from tokenweight.commands.showing import note, show
from tokenweight.errors import UserError
from tokenweight.pipeline.store import open_store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    Choices,
    ExecutionOption,
    ExperimentsOption,
    RunOptions,
    ScaleOption,
    SeedsOption,
)

if TYPE_CHECKING:
    from tokenweight.flows.pool import Pool

MEASURES = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "planted")


@command
def reproduce(
    experiments: ExperimentsOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    options: RunOptions,
    choices: Choices,
    execution: ExecutionOption = (),
) -> None:
    """Run what is missing and write the tables."""
    from tokenweight.tasks.experiments import plan_texts

    place = open_store(options.store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    note(*left_out)
    chosen = partial(planned_execution if options.pool else execution_for, wanted[0].like, execution, **choices)
    texts = [str(Path(text).resolve()) if text.endswith((".yaml", ".yml")) else text for text in experiments]
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
    make_and_show(wanted, place, options, chosen, pool=_pool(options, experiment=" ".join(texts), **given))


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
    from tokenweight.planning.view import plan_rows, print_plan
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
    if report_only:
        show(*write_tables(planned, place, results_directory(options.out), options.figures))
        return
    not_here = dry_run or options.pool
    chosen = partial(planned_execution if not_here else execution_for, planned.like, execution, **choices)
    if dry_run:
        parts = {planned.name: planned.graph}
        print_plan(plan_rows(planned.name, scale, parts, [], place, chosen())[0], everything=False)
        check_before_running([planned.graph], place, chosen())
        return
    text = user.model_dump_json(indent=1, exclude_defaults=True)
    given = {"scale": scale, "execution": execution, **choices, **inputs.model_dump()}
    make_and_show([planned], place, options, chosen, pool=_pool(options, experiment=text, **given))


def _pool(options: RunOptions, **parameters: Any) -> Pool | None:
    """Where models run, and the parameters of the flow `reproduce` there."""
    if options.pool is None:
        return None
    from tokenweight.flows.pool import Pool

    return Pool(options.pool, options.at_once, parameters)
