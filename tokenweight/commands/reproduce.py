"""The commands `tokenweight reproduce`, and `sweep` for an experiment that is written on the command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.commands.showing import note
from tokenweight.errors import UserError
from tokenweight.pipeline.store import open_store
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    Choices,
    ExecutionOption,
    ExperimentsOption,
    RunOptions,
    ScaleOption,
    SeedsOption,
)

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
    chosen = partial(execution_for, wanted[0].like, execution, here=not options.pool, **choices)
    pool = None
    if options.pool:
        from tokenweight.flows.pool import Pool

        texts = [str(Path(text).resolve()) if text.endswith((".yaml", ".yml")) else text for text in experiments]
        given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
        pool = Pool(options.pool, options.at_once, {"experiment": " ".join(texts), **given})
    make_and_show(wanted, place, options, chosen, pool=pool)


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
    """A user's experiment that is written on the command line: its text is what `plan`, `report` and `reproduce` take."""
    from tokenweight.commands.plan import plan
    from tokenweight.commands.report import report
    from tokenweight.recipes.recipe import chosen_names
    from tokenweight.reports.targets.find import find_experiments
    from tokenweight.reports.targets.schema import SWEPT_ON
    from tokenweight.reports.targets.typed import sweep_experiment

    if dry_run and report_only:
        raise UserError("--dry-run: does not go with --report-only; leave one out")
    benchmarks = chosen_names("--measures", measures, MEASURES) if measures else SWEPT_ON
    user = sweep_experiment(recipes, over, members, benchmarks, name)
    find_experiments([user], scale, inputs)  # what is wrong is named as the options name it, not by lines of the text
    text = user.model_dump_json(indent=1, exclude_defaults=True)
    given = {"scale": scale, "store": options.store, **inputs.model_dump()}
    if report_only:
        report(text, **given, out=options.out, figures=options.figures)
    elif dry_run:
        plan([text], **given, execution=execution, **choices)
    else:
        reproduce([text], **{**given, **dict(options)}, execution=execution, **choices)
