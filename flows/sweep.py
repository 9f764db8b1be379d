"""Sweeps: each member trained and evaluated, one after the other or as flow runs of their own; one table at the end."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import Flow, flow, runtime
from prefect.logging import get_run_logger
from pydantic import Field

from tokenweight.errors import StageError
from tokenweight.flows.described import described
from tokenweight.flows.members import MOST_AT_ONCE, cancel_members, run_here, run_in_pool
from tokenweight.flows.parameters import inputs_from, store_at
from tokenweight.flows.reproduce import reproduce
from tokenweight.flows.run import run_graph
from tokenweight.pipeline import Store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.schema import Execution, ScoreName
from tokenweight.recipes.sweep import sweep_of
from tokenweight.tasks.publish import publish
from tokenweight.tasks.sweep import SHARED, PlannedSweep, check, chosen_measures, collect_sweep, plan_sweep

_INPUTS = tuple(name for name in Inputs.model_fields if name != "settings")
_DEVICES = ("launcher", "processes", "device")
_COMMON = ("scale", "store", *_INPUTS, "settings", *_DEVICES, "execution")  # what these mean in `reproduce`

Recipes = Annotated[list[str], Field(min_length=1, description="Recipes, usually one, e.g. table-3/frozen-sparse")]
Over = Annotated[
    list[str] | None, Field(description="field=value,value each, e.g. weighting.kappa=0.2,0.4; members: the product")
]
Explicit = Annotated[
    list[str] | None, Field(description="In place of over: for each member a text of field=value field=value")
]
Measures = Annotated[
    str | None, Field(description="Of ruler,longbench,mmlu,bbh,perplexity,pmi,planted; None: the first three")
]
Name = Annotated[str | None, Field(description="Of files and runs; None: made of the recipe and the fields")]
Pool = Annotated[
    str | None, Field(description="Work pool where each member is a flow run of its own; None: all in this flow run")
]
AtOnce = Annotated[int, Field(ge=1, le=MOST_AT_ONCE, description="Members in the pool at the same time")]


@dataclass(frozen=True)
class _Wanted:
    """What a flow's flat parameters say."""

    planned: PlannedSweep
    store: Store
    execution: Execution


def _wanted(
    recipes: list[str],
    over: list[str] | None,
    members: list[str] | None,
    measures: str | None,
    name: str | None,
    common: dict[str, Any],
    elsewhere: bool = False,
) -> _Wanted:
    """The plan; each member's recipe is checked. `elsewhere`: this machine trains nothing, its GPUs do not count."""
    scale, place = common["scale"], store_at(common["store"])
    inputs = inputs_from(common["settings"], **{key: common[key] for key in _INPUTS})
    sweep = sweep_of(recipes, over or (), members or (), scale, inputs, name or None)
    execution = planned_execution if elsewhere else execution_for
    how = execution(scale, common["execution"] or (), **{key: common[key] for key in _DEVICES})
    return _Wanted(plan_sweep(sweep, scale, chosen_measures(measures), place), place, how)


def _with_common(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a flow's function in place of `**common` the parameters of `reproduce` that all sweeps have, and `more`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        of_reproduce = inspect.signature(reproduce.fn, eval_str=True).parameters
        every = [parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        every += [of_reproduce[name] for name in (*_COMMON, *more)]
        keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        return function

    return decorate


@flow(name="sweep-member", flow_run_name="{sweep} {scale}: {member}", persist_result=False)
@described
@_with_common()
def sweep_member(
    sweep: Annotated[str, Field(description="The sweep's name")],
    member: Annotated[str, Field(description=f'Its label, e.g. kappa=0.2 seed=1; or "{SHARED}"')],
    recipes: Recipes,
    over: Over = None,
    members: Explicit = None,
    measures: Measures = None,
    **common: Any,
) -> None:
    """Train and evaluate one member of a sweep, or make what several members need; finished stages are reused."""
    wanted = _wanted(recipes, over, members, measures, sweep, common)
    run_graph(wanted.planned.graph_of(member, wanted.store), wanted.store, wanted.execution)


def _run_name() -> str:
    """`sweep table-3/frozen-sparse weighting.kappa smoke`, or the sweep's own name and the scale."""
    given = runtime.flow_run.parameters
    fields = [text.partition("=")[0] for text in given["over"] or []]
    told = given["name"] or " ".join([runtime.flow_run.flow_name, *given["recipes"], *fields])
    return f"{told} {given['scale']}"


@flow(name="sweep", flow_run_name=_run_name, persist_result=False, on_cancellation=[cancel_members])
@described
@_with_common("out", "figures")
def sweep(
    recipes: Recipes,
    over: Over = None,
    members: Explicit = None,
    measures: Measures = None,
    name: Name = None,
    pool: Pool = None,
    at_once: AtOnce = 4,
    **common: Any,
) -> dict[str, str]:
    """Train and evaluate every member that the store does not hold, and write one table and one figure.

    A member that fails does not stop the others; the run then ends as failed, after the table is written.
    """
    out, figures = Path(common.pop("out")).expanduser().resolve(), common.pop("figures")
    wanted = _wanted(recipes, over, members, measures, name, common, elsewhere=bool(pool))
    planned, place, logger = wanted.planned, wanted.store, get_run_logger()
    check(planned, place, wanted.execution)
    waiting = [label for label in planned.runs if planned.to_make(label, place)]
    logger.info(
        "%s: %d members, %d runs, %d of them to do",
        planned.sweep.name,
        len(planned.sweep.members),
        len(planned.runs),
        len(waiting),
    )
    given = {"recipes": recipes, "over": over, "members": members, "measures": measures}
    parameters = {"sweep": planned.sweep.name, **given, **common, "store": str(place.root)}
    if pool:
        failed = run_in_pool(planned, place, waiting, parameters, pool, at_once)
    else:
        failed = run_here(sweep_member, waiting, parameters)
    report, files = collect_sweep(planned, place, out, failed, figures)
    behind = {
        recipe: node.identity for recipe, node in planned.graph.trained.items() if place.path(node.identity).is_dir()
    }
    publish(f"{report.target}-{report.scale}", f"{report.title} at scale {report.scale}", files, place, behind)
    if failed:
        labels = {reason: [label for label, why in failed.items() if why == reason] for reason in failed.values()}
        told = "; ".join(f"{', '.join(members)}: {reason}" for reason, members in labels.items())
        raise StageError(
            f"{len(failed)} of {len(planned.runs)} runs failed: {told}; the table has the others, "
            "the same command again makes what is missing"
        )
    return {kind: str(path) for kind, path in files.items()}


def _sweep_of(field: str, values: inspect.Parameter, recipe: str) -> Flow[..., dict[str, str]]:
    """A sweep over one field as a flow, named like its deployment, whose values have a type and limits."""

    def run(**parameters: Any) -> dict[str, str]:
        first = f"{field}={json.dumps(parameters.pop(values.name))[1:-1]}"
        over = [first, *(parameters.pop("over") or [])]
        result: dict[str, str] = sweep.fn(over=over, members=None, **parameters)
        return result

    title = values.name.removesuffix("s")
    of_sweep = dict(inspect.signature(sweep.fn, eval_str=True).parameters)
    del of_sweep["members"]
    of_sweep["recipes"] = of_sweep["recipes"].replace(default=[recipe])
    of_sweep["over"] = of_sweep["over"].replace(
        annotation=Annotated[list[str] | None, Field(description="Further fields, e.g. seed=0,1")]
    )
    run.__signature__ = inspect.Signature([values, *of_sweep.values()])  # type: ignore[attr-defined]
    run.__doc__ = f"Train and evaluate a recipe with each of some values of {field}; one table, one figure."
    decorate = flow(
        name=f"sweep-{title}", flow_run_name=_run_name, persist_result=False, on_cancellation=[cancel_members]
    )
    return decorate(described(run))


def _values(name: str, item: Any, default: list[Any], text: str) -> inspect.Parameter:
    annotation = Annotated[list[item], Field(min_length=1, description=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


sweep_kappa = _sweep_of(
    "weighting.kappa",
    _values("kappas", Annotated[float, Field(gt=0, le=1)], [0.2, 0.4, 0.6, 0.8], "Sparsity ratios, of a sparse recipe"),
    "table-3/frozen-sparse",
)
sweep_lambda = _sweep_of(
    "weighting.lambda",
    _values("lambdas", Annotated[float, Field(ge=0, le=1)], [0, 0.25, 0.5, 0.75], "Interpolations, of a dense recipe"),
    "table-3/frozen-dense",
)
sweep_score = _sweep_of(
    "weighting.score",
    _values(
        "scores", ScoreName, ["abs_pmi", "ppmi", "npmi", "sppmi", "snpmi"], "Score functions, of a weighted recipe"
    ),
    "table-3/frozen-sparse",
)
sweep_scorer = _sweep_of(
    "scorer.kind",
    _values("scorers", Literal["frozen", "unfrozen"], ["frozen", "unfrozen"], "Who scores, of a weighted recipe"),
    "table-3/frozen-sparse",
)
