"""Flows that reproduce a target of the paper: plan, run what is missing, collect the table."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import Flow, flow
from prefect.logging import get_run_logger
from pydantic import Field

from tokenweight.errors import UserError
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.flows.described import described
from tokenweight.flows.parameters import (
    Base,
    Bbh,
    Corpus,
    Haystack,
    HotpotQa,
    LongBench,
    Mmlu,
    Squad,
    Tokenizer,
    inputs_from,
    store_at,
)
from tokenweight.flows.run import run_graph
from tokenweight.pipeline import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes import load
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.schema import Execution, Scale
from tokenweight.tasks.collect import Planned, collect, plan_targets
from tokenweight.tasks.publish import publish

ScaleParameter = Annotated[Scale, Field(description="smoke: CPU, minutes; mini: one GPU; paper: 8 GPUs")]
Seeds = Annotated[
    int | None, Field(ge=1, description="Runs of each recipe with other training data; None: the target's own")
]
StoreParameter = Annotated[str, Field(description="Directory of the artifacts; finished stages are reused")]
OutParameter = Annotated[str, Field(description="Directory for TARGET.md, .tex, .csv, .json and its figures")]
SettingsParameter = Annotated[list[str] | None, Field(description="key=value of recipe fields, e.g. training.steps=12")]
Launcher = Annotated[
    Literal["inline", "torchrun", "deepspeed", "srun"] | None, Field(description="None: the scale's own")
]
Processes = Annotated[int | None, Field(ge=1, description="Training processes of all nodes, one a GPU")]
ExecutionSettings = Annotated[list[str] | None, Field(description="key=value of Execution, e.g. nodes=2")]
Device = Annotated[Literal["auto", "cpu", "cuda"] | None, Field(description="None: the scale's own")]


@flow(name="reproduce", flow_run_name="{target} {scale}", persist_result=False)
@described
def reproduce(
    target: Annotated[str, Field(description="A table or figure of the paper, e.g. table-3; paper: all")],
    scale: ScaleParameter = "smoke",
    seeds: Seeds = None,
    store: StoreParameter = "./store",
    out: OutParameter = "./results",
    corpus: Corpus = None,
    base: Base = None,
    tokenizer: Tokenizer = None,
    mmlu: Mmlu = None,
    bbh: Bbh = None,
    longbench: LongBench = None,
    haystack: Haystack = None,
    squad: Squad = None,
    hotpotqa: HotpotQa = None,
    settings: SettingsParameter = None,
    launcher: Launcher = None,
    processes: Processes = None,
    device: Device = None,
    execution: ExecutionSettings = None,
    figures: Annotated[bool, Field(description="Draw the figures beside the table")] = True,
) -> dict[str, str]:
    """Reproduce any target: chunk, score, extend, train, evaluate, collect; finished stages are reused."""
    place = store_at(store)
    inputs = inputs_from(
        settings,
        corpus=corpus,
        base=base,
        tokenizer=tokenizer,
        mmlu=mmlu,
        bbh=bbh,
        longbench=longbench,
        haystack=haystack,
        squad=squad,
        hotpotqa=hotpotqa,
    )
    how = execution_for(scale, execution or (), launcher=launcher, processes=processes, device=device)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    for line in left_out:
        get_run_logger().warning(line)
    check_before_running([planned.graph for planned in wanted], place, how)
    return _run(wanted, place, how, target=target, out=out, figures=figures)


def _run(
    wanted: list[Planned], place: Store, how: Execution, *, target: str, out: str, figures: bool
) -> dict[str, str]:
    """Run plans that were checked, one target after the other; the paths of what is written, see :func:`files_of`."""
    written: dict[str, str] = {}
    for planned in wanted:
        name, scale = planned.target.name, planned.scale
        steps = run_graph(planned.graph, place, how)
        _, files = collect(planned, place, Path(out).expanduser().resolve(), figures=figures)
        made = sum(step.action != "reuse" for step in steps)
        get_run_logger().info("%s: %d artifacts made, %d reused", name, made, len(steps) - made)
        behind = {recipe: node.identity for recipe, node in planned.graph.trained.items()}
        publish(f"{name}-{scale}", f"{name} at scale {scale}", files, place, behind)
        written |= {kind if name == target else f"{name}.{kind}": str(path) for kind, path in files.items()}
    return written


def files_of(name: str, target: str, written: dict[str, str]) -> dict[str, Path]:
    """The files of one target, by kind, among those that a flow of `target` returned."""
    before = "" if name == target else f"{name}."
    return {kind.removeprefix(before): Path(path) for kind, path in written.items() if kind.startswith(before)}


def flow_of_plans(wanted: list[Planned], place: Store, how: Execution) -> Flow[..., dict[str, str]]:
    """The flow `reproduce`, by keyword, for a caller that has made the plans of its parameters and checked them."""

    def run(target: str, out: str, figures: bool, **_: Any) -> dict[str, str]:
        return _run(wanted, place, how, target=target, out=out, figures=figures)

    whole = inspect.signature(reproduce.fn, eval_str=True)
    keywords = [p.replace(kind=p.KEYWORD_ONLY) for p in whole.parameters.values()]
    run.__signature__ = whole.replace(parameters=keywords)  # type: ignore[attr-defined]
    run.__doc__ = reproduce.fn.__doc__
    return flow(name="reproduce", flow_run_name="{target} {scale}", persist_result=False)(run)


def _flow_of(target: str) -> Flow[..., dict[str, str]]:
    """The flow of one target, named like its deployment: `prefect deployment run reproduce-table-3/reproduce-table-3`."""

    def run(**parameters: Any) -> dict[str, str]:
        return reproduce.fn(target, **parameters)

    whole = inspect.signature(reproduce.fn, eval_str=True)
    keywords = [p.replace(kind=p.KEYWORD_ONLY) for name, p in whole.parameters.items() if name != "target"]
    run.__signature__ = whole.replace(parameters=keywords)  # type: ignore[attr-defined]
    run.__doc__ = f"Reproduce {target} of the paper; finished stages are reused."
    decorate = flow(name=f"reproduce-{target}", flow_run_name=f"{target} {{scale}}", persist_result=False)
    return decorate(described(run))


reproduce_table_1 = _flow_of("table-1")
reproduce_table_3 = _flow_of("table-3")
reproduce_table_4 = _flow_of("table-4")
reproduce_table_5 = _flow_of("table-5")
reproduce_table_7 = _flow_of("table-7")
reproduce_table_8 = _flow_of("table-8")
reproduce_table_9 = _flow_of("table-9")
reproduce_table_10 = _flow_of("table-10")
reproduce_figure_3 = _flow_of("figure-3")
reproduce_table_11 = _flow_of("table-11")
reproduce_figure_1 = _flow_of("figure-1")
reproduce_figure_2 = _flow_of("figure-2")
reproduce_figure_4 = _flow_of("figure-4")
reproduce_figure_5 = _flow_of("figure-5")
reproduce_planted = _flow_of("planted")
reproduce_ruler_tasks = _flow_of("ruler-tasks")
reproduce_paper = _flow_of("paper")


@flow(name="train-and-evaluate", flow_run_name="{recipe} {scale}", persist_result=False)
@described
def train_and_evaluate(
    recipe: Annotated[str, Field(description="A recipe, e.g. table-3/frozen-sparse")],
    scale: ScaleParameter = "smoke",
    store: StoreParameter = "./store",
    benchmarks: Annotated[list[str] | None, Field(description="Which benchmarks; None: all but phrase")] = None,
    corpus: Corpus = None,
    base: Base = None,
    settings: SettingsParameter = None,
    launcher: Launcher = None,
    processes: Processes = None,
    device: Device = None,
    execution: ExecutionSettings = None,
) -> list[str]:
    """Train one recipe and evaluate it; returns the addresses of its evaluation artifacts."""
    place = store_at(store)
    loaded = load(recipe, scale, inputs_from(settings, corpus=corpus, base=base))
    unknown = sorted(set(benchmarks or ()) - set(BENCHMARKS))
    if unknown:
        raise UserError(f"benchmarks: {unknown[0]!r} is unknown; choose from {', '.join(BENCHMARKS)}")
    usual = tuple(name for name in BENCHMARKS if name != "phrase")  # needs a text of the user's own
    graph = Planner(place).graph([loaded], benchmarks or usual)
    how = execution_for(scale, execution or (), launcher=launcher, processes=processes, device=device)
    run_graph(graph, place, how)
    return [node.identity.address for node in graph.evaluations[recipe]]
