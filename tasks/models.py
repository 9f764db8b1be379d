"""Models as they are, as an experiment: which there are, on what they are evaluated, and whether that can be."""

from __future__ import annotations

from collections.abc import Sequence

from tokenweight.errors import UserError
from tokenweight.evaluation.model_spec import ModelSpec, find
from tokenweight.evaluation.run import check_backend
from tokenweight.evaluation.units import Evaluate, unreachable
from tokenweight.pipeline import Store
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.planning.plan import shortened, to_make
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports.targets.find import find_experiments, models_experiment
from tokenweight.tasks.experiments import plan_experiment

OFFERED = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi")


def chosen_lengths(text: str | None) -> tuple[int, ...]:
    """Comma-separated lengths in tokens, ascending; None: (). UserError for what is no length."""
    if text is None:
        return ()
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() and int(piece) > 1 for piece in pieces):
        raise UserError(f"--lengths {text}: not lengths in tokens; write for example 4096,8192")
    return tuple(sorted({int(piece) for piece in pieces}))


def plan_models(
    names: Sequence[str], how: ModelOptions, inputs: Inputs, store: Store, benchmarks: str | None, lengths: str | None
) -> tuple[ResolvedExperiment, bool]:
    """The evaluation of models by name, planned, and whether anything of it is to be made.

    Raises:
        UserError: a model cannot be evaluated or is given twice, it cannot read the lengths, or the backend or data are
        missing; all data that is missing is named.
    """
    chosen = () if benchmarks is None else chosen_names("--benchmarks", benchmarks, OFFERED)
    lengths_tokens = chosen_lengths(lengths)
    if how.revision and len(names) > 1:
        raise UserError(f"--revision {how.revision}: belongs to one model; evaluate it alone")
    models = _labelled([find(name, how.revision or None, how.context_tokens) for name in names])
    if how.tensor_parallel > 1 and how.backend == "hf":
        raise UserError(f"--tensor-parallel {how.tensor_parallel}: belongs to --backend vllm; leave it out")
    by_label = {label: model.name for label, model in models.items()}
    spec = models_experiment(by_label, chosen, lengths_tokens=lengths_tokens, limit=how.limit, backend=how.backend)
    bases = {model.name: model.base for model in models.values()}
    (resolved,), _ = find_experiments([spec], how.scale, inputs, bases=bases)
    planned = plan_experiment(resolved, store)
    stages = [artifact.stage for artifact in to_make(planned.graph, store)]
    if stages:
        check_backend(how.backend)
        asked = {stage.unit.benchmark for stage in stages if isinstance(stage, Evaluate)}
        missing = [*shortened(planned.graph.missing), *unreachable(asked, resolved.each_recipe[0].evaluation)]
        if missing:
            raise UserError("missing: " + "; ".join(missing))
    return planned, bool(stages)


def _labelled(models: Sequence[ModelSpec]) -> dict[str, ModelSpec]:
    """Each model by a label of its own; UserError for a model given twice."""
    labelled: dict[str, ModelSpec] = {}
    for model in models:
        if any(model.base == other.base for other in labelled.values()):
            raise UserError(f"--model {model.name}: given twice; give it once")
        label, number = model.label, 2
        while label in labelled:
            label, number = f"{model.label}-{number}", number + 1
        labelled[label] = model
    return labelled
