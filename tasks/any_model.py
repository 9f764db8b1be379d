"""Evaluate any models as they are: from their names to a plan, and from records to a table. Loads no Prefect."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tokenweight import embedded
from tokenweight.console_progress import console_progress
from tokenweight.errors import UserError
from tokenweight.evaluation.backends import check_backend
from tokenweight.evaluation.devices import evaluation_execution
from tokenweight.evaluation.hub_data import unreachable
from tokenweight.evaluation.model_spec import ModelSpec, find
from tokenweight.evaluation.stages import Evaluate
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline import Store
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import schedule, shortened
from tokenweight.recipes import Loaded
from tokenweight.recipes.any_model import AnyModelScale, evaluation_recipe
from tokenweight.recipes.cited import chosen_names
from tokenweight.recipes.inputs import Inputs, told
from tokenweight.recipes.schema import Backend, Execution, HubBase
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import write_figures
from tokenweight.reports.manifest import Manifest, RowEntry
from tokenweight.reports.model import Report
from tokenweight.reports.targets.any_model import COLUMNS, any_model_target
from tokenweight.reports.writing import write_report
from tokenweight.tasks.collect import unit_entry
from tokenweight.tasks.here import run_here

OFFERED = tuple(COLUMNS)
DEFAULT = tuple(name for name in OFFERED if name != "pmi")  # reads whole documents twice, for no table: on request


@dataclass(frozen=True)
class PlannedModels:
    """Models to evaluate: their recipes, by label, and the artifacts that they need."""

    subjects: dict[str, ModelSpec]
    recipes: dict[str, Loaded]
    graph: Graph
    scale: AnyModelScale
    benchmarks: tuple[str, ...]
    limit: int | Mapping[str, int] | None
    backend: Backend = "hf"
    inputs: Inputs = field(default_factory=Inputs)


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
    recipes = {
        label: evaluation_recipe(
            label,
            subject.base,
            scale,
            inputs,
            benchmarks=benchmarks,
            lengths_tokens=lengths_tokens,
            limit=limit,
            backend=backend,
        )
        for label, subject in labelled.items()
    }
    graph = Planner(store).graph(recipes.values(), benchmarks)
    return PlannedModels(labelled, recipes, graph, scale, benchmarks, limit, backend, inputs)


def run_models(
    planned: PlannedModels,
    store: Store,
    device: Literal["auto", "cpu", "cuda"] | None,
    processes: int | None,
    tensor_parallel: int = 1,
) -> None:
    """Evaluate what the store does not hold, in this process and its workers, with progress on stderr.

    Raises:
        UserError: data, a GPU or the backend is missing; all data that is missing is named, before any model is loaded.
        StageError: an evaluation failed; what was finished stays, and the next run goes on from there.
    """
    execution = execution_of(planned, store, device, processes, tensor_parallel)
    if execution is None:
        _say(f"All {len(planned.graph.artifacts)} artifacts are in the store: nothing to run.")
        return
    embedded.end_at_signal()
    with console_progress() as progress:
        run_here(planned.graph, store, execution, progress, _say)


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


def manifest(planned: PlannedModels) -> Manifest:
    """Which artifacts stand behind each model's row."""
    evaluations = [loaded.recipe.evaluation for loaded in planned.recipes.values()]
    return Manifest(
        target=_name(planned),
        scale=planned.scale,
        rows=tuple(
            RowEntry(
                row=label,
                recipe=loaded.recipe.name,
                units=tuple(unit_entry(node) for node in planned.graph.evaluations[loaded.recipe.name]),
            )
            for label, loaded in planned.recipes.items()
        ),
        longbench_split_tokens=evaluations[0].longbench.split_tokens,
        longbench_length_unit=evaluations[0].longbench.length_unit,
        ruler_lengths_tokens=_union(evaluation.ruler.lengths_tokens for evaluation in evaluations),
        perplexity_lengths_tokens=_union(evaluation.perplexity.lengths_tokens for evaluation in evaluations),
        divergences=(*told(planned.inputs), *(_said_of(label, planned) for label in planned.subjects)),
    )


def collect_models(planned: PlannedModels, store: Store, out_dir: Path) -> tuple[Report, dict[str, Path]]:
    """The table of the models from what the store holds, written as Markdown, LaTeX, CSV and JSON; its figures."""
    names = {label: loaded.recipe.name for label, loaded in planned.recipes.items()}
    target = any_model_target(_name(planned), names, planned.benchmarks, _about(planned))
    described = manifest(planned)
    report = build_report(described, store.root, target)
    files = write_report(report, out_dir)
    return report, files | write_figures(target, report, described, store.root, out_dir)


def _name(planned: PlannedModels) -> str:
    labels = list(planned.subjects)
    backend = "" if planned.backend == "hf" else f"-{planned.backend}"
    return (f"evaluation-{labels[0]}" if len(labels) == 1 else "evaluation") + backend


def _about(planned: PlannedModels) -> str:
    scale = (
        "Scale paper: the paper's benchmarks, prompts, metrics and lengths."
        if planned.scale == "paper"
        else "Scale smoke: shipped miniatures of the benchmarks at short lengths, to try the command; its numbers say "
        "nothing of a model."
    )
    limit = f" Limited to {planned.limit} of each task's samples: not the whole protocol." if planned.limit else ""
    left_out = [name for name in DEFAULT if name not in planned.benchmarks]
    backend = "" if planned.backend == "hf" else f" Backend {planned.backend}."
    return scale + backend + limit + (f" Not run: {', '.join(left_out)}." if left_out else "")


def _said_of(label: str, planned: PlannedModels) -> str:
    subject, recipe = planned.subjects[label], planned.recipes[label].recipe
    if isinstance(subject.base, HubBase):
        which = f"{subject.base.repo_id} at {subject.base.revision}"
    else:
        which = f"a directory, by its content {planned.graph.checkpoints[recipe.name].fingerprint[:12]}"
    of = f" of {subject.context_tokens}" if recipe.context_tokens < subject.context_tokens else ""
    return f"{label}: {which}; read with inputs of up to {recipe.context_tokens}{of} tokens."


def _union(lengths_tokens: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({n for lengths in lengths_tokens for n in lengths}))
