"""The commands that evaluate any model: `tokenweight evaluate` and `agree`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from tokenweight.commands.options import (
    EVALUATION_OPTIONS,
    RESULTS,
    STORE,
    JsonOption,
    OutOption,
    StoreOption,
    open_store,
    with_inputs,
)
from tokenweight.commands.showing import show
from tokenweight.errors import StageError, UserError
from tokenweight.recipes.inputs import Inputs


def _evaluate(
    model: Annotated[list[str], typer.Option(help="Checkpoint directory or hub id; repeat for more rows.")],
    inputs: Inputs,
    revision: Annotated[str | None, typer.Option(help="Of a hub id. Default: its main branch.")] = None,
    benchmarks: Annotated[
        str | None, typer.Option(help="Of ruler,longbench,mmlu,bbh,perplexity,pmi. Default: all but pmi.")
    ] = None,
    scale: Annotated[
        Literal["paper", "smoke"], typer.Option(help="paper: the whole protocol; smoke: shipped miniatures.")
    ] = "paper",
    limit: Annotated[int | None, typer.Option(min=1, help="Samples of a task at most. Default: all.")] = None,
    lengths: Annotated[
        str | None, typer.Option(help="RULER's and perplexity's, in tokens, e.g. 4096,8192. Default: what fits.")
    ] = None,
    context: Annotated[int | None, typer.Option(min=2, help="Longest input in tokens. Default: config.json's.")] = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: cuda, at scale smoke auto.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="That share the work. Default: one a visible GPU.")
    ] = None,
    backend: Annotated[
        Literal["hf", "vllm"], typer.Option(help="vllm: where it is installed (docs/evaluate.md); no perplexity.")
    ] = "hf",
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share one model; with --backend vllm.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's evaluation on any causal language model, and write its table."""
    from tokenweight.tasks import any_model

    chosen, wanted = any_model.chosen_benchmarks(benchmarks, backend), any_model.chosen_lengths(lengths)
    if tensor_parallel > 1 and backend == "hf":
        raise UserError(f"--tensor-parallel {tensor_parallel}: belongs to --backend vllm; leave it out")
    if revision is not None and len(model) > 1:
        raise UserError(f"--revision {revision}: belongs to one model; evaluate it alone")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    place = open_store(store)
    subjects = any_model.subjects(model, revision, context, chosen)
    planned = any_model.plan_models(
        subjects, scale, inputs, place, benchmarks=chosen, lengths_tokens=wanted, limit=limit, backend=backend
    )
    any_model.run_models(planned, place, device, processes, tensor_parallel)
    report, files = any_model.collect_models(planned, place, out.expanduser().resolve())
    show(report, files, as_json=as_json)


evaluate = with_inputs(_evaluate, EVALUATION_OPTIONS)


def _agree(
    model: Annotated[str, typer.Option(help="Checkpoint directory or hub id.")],
    inputs: Inputs,
    revision: Annotated[str | None, typer.Option(help="Of a hub id. Default: its main branch.")] = None,
    backends: Annotated[str, typer.Option(help="Two; what the store holds of them is not run again.")] = "hf,vllm",
    benchmarks: Annotated[str, typer.Option(help="Of ruler,longbench,mmlu,bbh.")] = "ruler,longbench,mmlu,bbh",
    samples: Annotated[
        int, typer.Option(min=1, help="Of each benchmark, evenly of its tasks, at least one each.")
    ] = 50,
    limit: Annotated[
        int | None, typer.Option(min=1, help="In place of --samples: of each task, as of `evaluate --limit`.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="In place of --samples: all, as of `evaluate` without a limit.")
    ] = False,
    scale: Annotated[
        Literal["paper", "smoke"], typer.Option(help="paper: the whole protocol; smoke: shipped miniatures.")
    ] = "paper",
    lengths: Annotated[str | None, typer.Option(help="RULER's, in tokens, e.g. 4096,8192. Default: what fits.")] = None,
    context: Annotated[int | None, typer.Option(min=2, help="Longest input in tokens. Default: config.json's.")] = None,
    store: StoreOption = STORE,
    other_store: Annotated[
        Path | None, typer.Option(help="Of the second backend, where it was run elsewhere. Default: --store.")
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: cuda, at scale smoke auto.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="That share the work. Default: one a visible GPU.")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share one model; vllm's.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Ask two backends the same samples and compare prompts, outputs, scores; exit code 1 where they do not agree."""
    from tokenweight.tasks import agree, any_model

    if limit and whole:
        raise UserError(f"--limit {limit}: does not go with --whole; leave one out")
    pair, place = agree.chosen_backends(backends), open_store(store)
    stores = (place, open_store(other_store) if other_store else place)
    chosen, wanted = any_model.chosen_benchmarks(benchmarks), any_model.chosen_lengths(lengths)
    planned = agree.plan_both(
        any_model.subjects([model], revision, context, chosen)[0], scale, inputs, stores, pair,
        benchmarks=chosen, lengths_tokens=wanted, samples=None if limit or whole else samples, limit=limit,
    )  # fmt: skip
    agree.run_both(planned, stores, device, processes, tensor_parallel)
    result = agree.verdict(planned, stores)
    typer.echo(json.dumps(result.as_dict(), indent=1) if as_json else agree.table(result))
    if result.disagreements:
        raise StageError(f"{pair[0]} and {pair[1]} do not agree: {'; '.join(result.disagreements)}")


agree = with_inputs(_agree, {name: EVALUATION_OPTIONS[name] for name in EVALUATION_OPTIONS if name != "corpus"})
