"""The flow `evaluate`: the paper's evaluation of any models as they are, as `tokenweight evaluate` runs it."""

from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field

from tokenweight.evaluation.run import evaluation_execution
from tokenweight.flat import Part, flat
from tokenweight.flows.reproduce import paths_of, run_experiments
from tokenweight.pipeline.store import open_store
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import EvaluationInputs, ModelOptions, RunOptions
from tokenweight.tasks.experiments import plan_models

Length = Annotated[int, Field(gt=1)]


def _run_name() -> str:
    given: dict[str, Any] = flow_run.parameters
    models = [Path(name).name for name in given["models"]]
    return f"evaluate {', '.join(models)} {given['scale']}"


@flow(name="evaluate", flow_run_name=_run_name, persist_result=False)
@flat
def evaluate(
    models: Annotated[list[str], Field(min_length=1)],
    *,
    benchmarks: list[str] | None = None,
    lengths_tokens: list[Length] | None = None,
    inputs: EvaluationInputs,
    how: ModelOptions,
    options: Annotated[RunOptions, Part(RunOptions, "store", "out")],
) -> dict[str, str]:
    """Run the paper's evaluation on any causal language models and write one table; what is in the store is reused."""
    place = open_store(options.store)
    planned, runs = plan_models(models, how, inputs, place, benchmarks or (), lengths_tokens or ())
    execution = evaluation_execution(how) if runs else default_execution(how.scale)
    check_before_running([planned.graph] if runs else [], place, execution)
    return paths_of(run_experiments([planned], place, execution, options))[planned.name]
