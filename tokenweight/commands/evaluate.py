"""The command that evaluates any model: `tokenweight evaluate`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.flat import Part
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.options import EvaluationInputs, JsonOption, ModelOptions, RunOptions


@command
def evaluate(
    *,
    models: Annotated[list[str], Field(description="Checkpoint directory or hub id; repeat for more rows")],
    benchmarks: Annotated[
        str | None,
        Field(
            description="Comma-separated benchmarks of ruler,longbench,mmlu,bbh,perplexity,pmi. Default: all but pmi"
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        Field(
            description="Comma-separated lengths of RULER and perplexity in tokens, for example 4096,8192. Default: what fits"
        ),
    ] = None,
    inputs: EvaluationInputs,
    how: ModelOptions,
    options: Annotated[RunOptions, Part(RunOptions, "store", "out")],
    as_json: JsonOption = False,
) -> None:
    """The paper's evaluation of any models as they are."""
    from tokenweight.evaluation.backends import evaluation_execution
    from tokenweight.tasks.models import chosen_benchmarks, chosen_lengths, find_models, lacks_anything, plan_models

    chosen, wanted = chosen_benchmarks(benchmarks, how.backend), chosen_lengths(lengths)
    place, found = open_store(options.store), find_models(models, how)
    planned = plan_models(found, how, inputs, place, benchmarks=chosen, lengths_tokens=wanted)
    lacks_anything(planned, place)  # can it be had?
    make_and_show([planned], place, options, partial(evaluation_execution, how), as_json=as_json)
