"""Evaluate any models as they are: which there are and on what, and the run without Prefect."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tokenweight.errors import UserError
from tokenweight.evaluation.backends import check_backend
from tokenweight.evaluation.devices import evaluation_execution
from tokenweight.evaluation.hub_data import unreachable
from tokenweight.evaluation.model_spec import ModelSpec, find
from tokenweight.evaluation.stages import Evaluate
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline import Store
from tokenweight.pipeline.manifest import keep_manifest
from tokenweight.planning.experiments import PlannedExperiment, plan_experiment
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import schedule, shortened
from tokenweight.recipes import Loaded
from tokenweight.recipes.any_model import AnyModelScale
from tokenweight.recipes.cited import chosen_names
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.schema import Backend, Execution
from tokenweight.reports.model import Report
from tokenweight.reports.targets.user import models_experiment, resolve_user
from tokenweight.reports.write_results import write_results

OFFERED = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi")
DEFAULT = OFFERED[:-1]  # pmi reads whole documents twice, for no table: on request


class PlannedModels(PlannedExperiment):
    """A planned experiment of models as they are, by today's names."""

    @property
    def subjects(self) -> dict[str, None]:
        return {row.key: None for row in self.resolved.experiment.rows}

    @property
    def recipes(self) -> dict[str, Loaded]:
        return {row: loaded for (row, _), loaded in self.resolved.recipes.items()}

    @property
    def scale(self) -> AnyModelScale:
        return self.resolved.scale  # type: ignore[return-value]

    @property
    def backend(self) -> Backend:
        return self.resolved.loaded[0].recipe.evaluation.backend


def chosen_benchmarks(text: str | None, backend: Backend = "hf") -> tuple[str, ...]:
    """Comma-separated names in the benchmarks' own order, the same for all runs. UserError for others.

    None: all but pmi, as far as the backend runs them.
    """
    if text is None:
        return tuple(
            name for name in BENCHMARKS if name in DEFAULT and (backend == "hf" or not BENCHMARKS[name].one_pass)
        )
    return chosen_names("--benchmarks", text, [name for name in BENCHMARKS if name in OFFERED])


def chosen_lengths(text: str | None) -> tuple[int, ...]:
    """Comma-separated lengths in tokens, ascending; None: (). UserError for what is no length."""
    if text is None:
        return ()
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() and int(piece) > 1 for piece in pieces):
        raise UserError(f"--lengths {text}: not lengths in tokens; write for example 4096,8192")
    return tuple(sorted({int(piece) for piece in pieces}))


def subjects(
    names: Sequence[str], revision: str | None, context_tokens: int | None, benchmarks: tuple[str, ...]
) -> list[ModelSpec]:
    """The models by name. Raises UserError for one that cannot be evaluated on these benchmarks."""
    found = [find(name, revision, context_tokens) for name in names]
    for subject in found:
        wanted = [name for name in ("perplexity", "pmi") if name in benchmarks]
        if wanted and (field := subject.no_perplexity_because):
            raise UserError(
                f"--model {subject.name}: changes its logits after the head ({field}), which {wanted[0]} here does not "
                f"follow; choose --benchmarks without {' and '.join(wanted)}"
            )
    return found


def plan_models(
    subjects: Sequence[ModelSpec],
    scale: AnyModelScale,
    inputs: Inputs,
    store: Store,
    *,
    benchmarks: tuple[str, ...],
    lengths_tokens: tuple[int, ...] = (),
    limit: int | Mapping[str, int] | None = None,
    backend: Backend = "hf",
) -> PlannedModels:
    """What evaluating the models needs. Raises UserError for lengths that a model cannot read."""
    labelled = _labelled(subjects)
    user = models_experiment(
        [subject.name for subject in labelled.values()], benchmarks, labels=list(labelled),
        lengths_tokens=lengths_tokens, limit=limit, backend=backend,
    )  # fmt: skip
    bases = {subject.name: subject.base for subject in labelled.values()}
    planned = plan_experiment(resolve_user(user, scale, inputs, bases=bases), store)
    return PlannedModels(planned.resolved, planned.graph, planned.manifest)


def run_models(
    planned: PlannedModels,
    store: Store,
    device: Literal["auto", "cpu", "cuda"] | None,
    processes: int | None,
    tensor_parallel: int = 1,
    *,
    run: Callable[[Graph, Store, Execution], None],
) -> None:
    """Evaluate by `run` what the store does not hold.

    Raises:
        UserError: data, a GPU or the backend is missing; all data that is missing is named, before any model is loaded.
        StageError: an evaluation failed; what was finished stays, and the next run goes on from there.
    """
    execution = execution_of(planned, store, device, processes, tensor_parallel)
    if execution is None:
        _say(f"All {len(planned.graph.artifacts)} artifacts are in the store: nothing to run.")
        return
    run(planned.graph, store, execution)


def execution_of(
    planned: PlannedModels,
    store: Store,
    device: Literal["auto", "cpu", "cuda"] | None,
    processes: int | None,
    tensor_parallel: int = 1,
) -> Execution | None:
    """How what the store does not hold is evaluated; None where it holds all.

    UserError: data, a GPU or the backend is missing; all data that is missing is named.
    """
    stages = [step.artifact.stage for step in schedule(planned.graph, store) if step.action != "reuse"]
    if not stages:
        return None
    evaluation = next(iter(planned.recipes.values())).recipe.evaluation
    check_backend(evaluation.backend)
    benchmarks = {stage.unit.benchmark for stage in stages if isinstance(stage, Evaluate)}
    missing = [*shortened(planned.graph.missing), *unreachable(benchmarks, evaluation)]
    if missing:
        raise UserError("missing: " + "; ".join(missing))
    return evaluation_execution(planned.scale, device, processes, tensor_parallel)


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _labelled(subjects: Sequence[ModelSpec]) -> dict[str, ModelSpec]:
    """Each model by a label of its own; UserError for a model given twice."""
    labelled: dict[str, ModelSpec] = {}
    for subject in subjects:
        if any(subject.base == other.base for other in labelled.values()):
            raise UserError(f"--model {subject.name}: given twice; give it once")
        label, number = subject.label, 2
        while label in labelled:
            label, number = f"{subject.label}-{number}", number + 1
        labelled[label] = subject
    return labelled


def collect_models(planned: PlannedModels, store: Store, out_dir: Path) -> tuple[Report, dict[str, Path]]:
    """The results of a plan."""
    written = write_results(planned.manifest, store.root, out_dir)
    keep_manifest(planned.manifest, store.root)
    return written
