"""The commands that evaluate any model: `tokenweight evaluate` and `agree`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.commands.options import run_flow
from tokenweight.commands.showing import print_json
from tokenweight.errors import StageError, UserError
from tokenweight.flat import Part
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import EvaluationInputs, JsonOption, ModelOptions, RunOptions

LengthsOption = Annotated[
    str | None,
    Field(
        description="Comma-separated lengths of RULER and perplexity in tokens, for example 4096,8192. Default: what fits"
    ),
]

if TYPE_CHECKING:
    from tokenweight.pipeline import Store
    from tokenweight.planning.graph import Graph
    from tokenweight.recipes.schema import Execution


def run_in_flow(graph: Graph, store: Store, execution: Execution) -> None:
    """Make what a graph needs as a flow run without a server of the user's."""
    run_flow(store.root, "run:run_in_flow", name="evaluate", graph=graph, store=store, execution=execution)


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
    lengths: LengthsOption = None,
    inputs: EvaluationInputs,
    how: ModelOptions,
    options: Annotated[RunOptions, Part(RunOptions, "store", "out")],
    as_json: JsonOption = False,
) -> None:
    """The paper's evaluation of any models as they are."""
    from tokenweight.evaluation.devices import evaluation_execution
    from tokenweight.tasks.models import chosen_benchmarks, chosen_lengths, find_models, lacks_anything, plan_models

    chosen, wanted = chosen_benchmarks(benchmarks, how.backend), chosen_lengths(lengths)
    place, found = open_store(options.store), find_models(models, how)
    planned = plan_models(found, how, inputs, place, benchmarks=chosen, lengths_tokens=wanted)
    lacks_anything(planned, place)  # can it be had?
    make_and_show([planned], place, options, partial(evaluation_execution, how), as_json=as_json)


@command
def agree(
    *,
    model: Annotated[str, Field(description="Checkpoint directory or hub id")],
    inputs: Annotated[Inputs, Part(Inputs, "mmlu", "bbh", "longbench", "haystack", "squad", "hotpotqa", "settings")],
    backends: Annotated[
        str, Field(description="Two backends; what the store holds of them is not run again")
    ] = "hf,vllm",
    benchmarks: Annotated[
        str, Field(description="Comma-separated benchmarks of ruler,longbench,mmlu,bbh")
    ] = "ruler,longbench,mmlu,bbh",
    samples: Annotated[
        int, Field(ge=1, description="Number of samples of each benchmark, spread over its tasks, at least one each")
    ] = 50,
    complete: Annotated[
        bool, Field(description="Ask all samples in place of --samples, as `evaluate` does without a limit")
    ] = False,
    lengths: LengthsOption = None,
    how: Annotated[
        ModelOptions,
        Part(ModelOptions, *(name for name in ModelOptions.model_fields if name != "backend")),
    ],
    options: Annotated[RunOptions, Part(RunOptions, "store")],
    other_store: Annotated[
        Path | None, Field(description="Store of the second backend, where it was run elsewhere. Default: --store")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Two backends on the same samples."""
    from tokenweight.tasks import agree
    from tokenweight.tasks.models import chosen_benchmarks, chosen_lengths, find_models

    if how.limit and complete:
        raise UserError(f"--limit {how.limit}: does not go with --whole; leave one out")
    pair, place = agree.chosen_backends(backends), open_store(options.store)
    stores = (place, open_store(other_store) if other_store else place)
    chosen, wanted = chosen_benchmarks(benchmarks), chosen_lengths(lengths)
    planned = agree.plan_both(
        find_models([model], how)[0], how, inputs, stores, pair, benchmarks=chosen, lengths_tokens=wanted,
        samples=None if how.limit or complete else samples,
    )  # fmt: skip
    agree.run_both(planned, stores, how, run_in_flow)
    result = agree.verdict(planned, stores)
    if as_json:
        print_json(result.as_dict())
    else:
        print(agree.table(result))
    if result.disagreements:
        raise StageError(f"{pair[0]} and {pair[1]} do not agree: {'; '.join(result.disagreements)}")
