"""The flow `evaluate`: the paper's evaluation of any models as they are, as `tokenweight evaluate` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from tokenweight.errors import UserError
from tokenweight.flat import flat
from tokenweight.flows.reproduce import store_at
from tokenweight.flows.run import run_graph
from tokenweight.recipes.options import (
    RESULTS,
    STORE,
    AnyModelScaleOption,
    BackendOption,
    ContextOption,
    DeviceOption,
    EvaluationInputs,
    EvaluationProcesses,
    LimitOption,
    OutOption,
    RevisionOption,
    StoreOption,
    TensorParallel,
)
from tokenweight.tasks import any_model
from tokenweight.tasks.publish import publish

Benchmark = Literal["ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi"]
Length = Annotated[int, Field(gt=1)]


def _run_name() -> str:
    given: dict[str, Any] = flow_run.parameters
    models = [Path(name).name for name in given["models"]]
    return f"evaluate {', '.join(models)} {given['scale']}"


@flow(name="evaluate", flow_run_name=_run_name, persist_result=False)
@flat
def evaluate(
    models: Annotated[list[str], Field(min_length=1, description="Checkpoint directories or hub ids, a row each")],
    *,
    scale: AnyModelScaleOption = "paper",
    benchmarks: Annotated[list[Benchmark] | None, Field(description="Benchmarks. Default: all but pmi")] = None,
    revision: RevisionOption = None,
    limit: LimitOption = None,
    lengths_tokens: Annotated[
        list[Length] | None, Field(description="Lengths of RULER and perplexity. Default: what fits the model")
    ] = None,
    context_tokens: ContextOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    device: DeviceOption = None,
    processes: EvaluationProcesses = None,
    backend: BackendOption = "hf",
    tensor_parallel: TensorParallel = 1,
    inputs: EvaluationInputs,
) -> dict[str, str]:
    """Run the paper's evaluation on any causal language models and write one table; what is in the store is reused."""
    if tensor_parallel > 1 and backend == "hf":
        raise UserError(f"tensor_parallel {tensor_parallel}: belongs to backend vllm; leave it at 1")
    if revision and len(models) > 1:
        raise UserError(f"revision {revision}: belongs to one model; evaluate it alone")
    place = store_at(store)
    chosen = any_model.chosen_benchmarks(",".join(benchmarks) if benchmarks else None, backend)
    subjects = any_model.subjects(models, revision or None, context_tokens, chosen)
    planned = any_model.plan_models(
        subjects, scale, inputs, place, benchmarks=chosen, lengths_tokens=tuple(sorted(set(lengths_tokens or ()))),
        limit=limit, backend=backend,
    )  # fmt: skip
    execution = any_model.execution_of(planned, place, device, processes, tensor_parallel)
    if execution is None:
        get_run_logger().info("all %d artifacts are in the store", len(planned.graph.artifacts))
        outcome = None
    else:
        outcome = run_graph(planned.graph, place, execution)
    report, files = any_model.collect_models(planned, place, out.expanduser().resolve())
    publish(f"{_key(report.target)}-{scale}", f"{report.target} at scale {scale}", files, place)
    if outcome:
        outcome.raise_failures()
    return {kind: str(path) for kind, path in files.items()}


def _key(name: str) -> str:
    """A name as an artifact's key: lowercase letters, digits and dashes."""
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split())
