"""The flow `evaluate`: the paper's evaluation of any models as they are, as `tokenweight evaluate` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from tokenweight.errors import UserError
from tokenweight.flows.described import described
from tokenweight.flows.parameters import (
    Bbh,
    Corpus,
    Haystack,
    HotpotQa,
    LongBench,
    Mmlu,
    Squad,
    inputs_from,
    store_at,
)
from tokenweight.flows.reproduce import Device, OutParameter, SettingsParameter, StoreParameter
from tokenweight.flows.run import run_graph
from tokenweight.tasks import any_model
from tokenweight.tasks.publish import publish

Benchmark = Literal["ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi"]
Length = Annotated[int, Field(gt=1)]


def _run_name() -> str:
    given: dict[str, Any] = flow_run.parameters
    models = [Path(name).name for name in given["models"]]
    return f"evaluate {', '.join(models)} {given['scale']}"


@flow(name="evaluate", flow_run_name=_run_name, persist_result=False)
@described
def evaluate(
    models: Annotated[list[str], Field(min_length=1, description="Checkpoint directories or hub ids, a row each")],
    scale: Annotated[
        Literal["paper", "smoke"], Field(description="paper: the whole protocol; smoke: shipped miniatures, CPU")
    ] = "paper",
    benchmarks: Annotated[list[Benchmark] | None, Field(description="None: all but pmi")] = None,
    revision: Annotated[str | None, Field(description="Of one hub id; None: its main branch")] = None,
    limit: Annotated[int | None, Field(ge=1, description="Samples of a task at most; None: all")] = None,
    lengths_tokens: Annotated[
        list[Length] | None, Field(description="RULER's and perplexity's, e.g. 4096; None: what fits the model")
    ] = None,
    context_tokens: Annotated[int | None, Field(ge=2, description="Longest input; None: config.json's")] = None,
    store: StoreParameter = "./store",
    out: OutParameter = "./results",
    device: Device = None,
    processes: Annotated[int | None, Field(ge=1, description="That share the work; None: one a visible GPU")] = None,
    backend: Annotated[Literal["hf", "vllm"], Field(description="vllm: where it is installed; no perplexity")] = "hf",
    tensor_parallel: Annotated[int, Field(ge=1, description="GPUs that share one model; with vllm")] = 1,
    corpus: Corpus = None,
    mmlu: Mmlu = None,
    bbh: Bbh = None,
    longbench: LongBench = None,
    haystack: Haystack = None,
    squad: Squad = None,
    hotpotqa: HotpotQa = None,
    settings: SettingsParameter = None,
) -> dict[str, str]:
    """Run the paper's evaluation on any causal language models and write one table; what is in the store is reused."""
    if tensor_parallel > 1 and backend == "hf":
        raise UserError(f"tensor_parallel {tensor_parallel}: belongs to backend vllm; leave it at 1")
    if revision and len(models) > 1:
        raise UserError(f"revision {revision}: belongs to one model; evaluate it alone")
    place = store_at(store)
    inputs = inputs_from(
        settings,
        corpus=corpus,
        mmlu=mmlu,
        bbh=bbh,
        longbench=longbench,
        haystack=haystack,
        squad=squad,
        hotpotqa=hotpotqa,
    )
    chosen = any_model.chosen_benchmarks(",".join(benchmarks) if benchmarks else None, backend)
    subjects = any_model.subjects(models, revision or None, context_tokens, chosen)
    planned = any_model.plan_models(
        subjects, scale, inputs, place, benchmarks=chosen, lengths_tokens=tuple(sorted(set(lengths_tokens or ()))),
        limit=limit, backend=backend,
    )  # fmt: skip
    execution = any_model.execution_of(planned, place, device, processes, tensor_parallel)
    if execution is None:
        get_run_logger().info("all %d artifacts are in the store", len(planned.graph.nodes))
    else:
        run_graph(planned.graph, place, execution)
    report, files = any_model.collect_models(planned, place, Path(out).expanduser().resolve())
    publish(f"{_key(report.target)}-{scale}", f"{report.target} at scale {scale}", files, place)
    return {kind: str(path) for kind, path in files.items()}


def _key(name: str) -> str:
    """A name as an artifact's key: lowercase letters, digits and dashes."""
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split())
