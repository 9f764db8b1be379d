"""From a resolved experiment to its artifacts and its manifest. Knows no reports; loads no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.stages import Evaluate
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline import Store
from tokenweight.pipeline.experiment import ResolvedExperiment, Row
from tokenweight.pipeline.manifest import Manifest, RowEntry, StageEntry, UnitEntry
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import PlanEntry, schedule, shortened
from tokenweight.recipes.inputs import last_part
from tokenweight.recipes.recipe import resolved as settings_of
from tokenweight.recipes.schema import Scale

SHARED = "what members share"  # a run that is no recipe's


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment, the artifacts that it needs, and which of them is behind what."""

    resolved: ResolvedExperiment
    graph: Graph
    manifest: Manifest

    @property
    def name(self) -> str:
        """The experiment's."""
        return self.resolved.experiment.name

    @property
    def like(self) -> Scale:
        """The named scale that the experiment's own is, or changes."""
        return self.resolved.loaded[0].recipe.scale

    @property
    def runs(self) -> dict[str, list[str]]:
        """Recipes that are the same run, by the first's name."""
        return {recipes[0]: recipes for recipes in _alike(self.graph)}

    def graph_of(self, run: str, store: Store) -> Graph:
        """The artifacts of one run, or of SHARED. UserError for another name."""
        if run == SHARED:
            return Graph(artifacts=self.graph.artifacts, evaluations={SHARED: self.shared_to_make(store)})
        if run not in self.runs:
            raise UserError(f"run {run!r}: is none of {self.name}'s; they are {', '.join(self.runs)}")
        return self.graph.part([run])

    def to_make(self, run: str, store: Store) -> list[PlanEntry]:
        """What a run lacks in the store."""
        return [step for step in schedule(self.graph_of(run, store), store) if step.action != "reuse"]

    def shared_to_make(self, store: Store) -> list[Artifact]:
        """What several runs need and the store lacks: texts, prompts, base, scores."""
        counts = Counter(step.artifact for run in self.runs for step in self.to_make(run, store))
        return [node for node in self.graph.artifacts if counts[node] > 1]


def plan_experiment(resolved: ResolvedExperiment, store: Store) -> PlannedExperiment:
    """The artifacts of all rows, each once. UserError for models and data that do not fit."""
    measured = resolved.experiment.benchmarks
    graph = Planner(store).graph(resolved.loaded, [name for name in BENCHMARKS if name in measured])
    return PlannedExperiment(resolved, graph, _manifest(resolved, graph))


def plan_experiments(
    found: Iterable[ResolvedExperiment], store: Store, skip_without_text: bool = False
) -> tuple[list[PlannedExperiment], list[str]]:
    """Each planned; with `skip_without_text` (all of the paper) those are left out that lack a text of the user's own."""
    planned, left_out = [], []
    for one in (plan_experiment(resolved, store) for resolved in found):
        if skip_without_text and one.resolved.experiment.own_text and one.graph.missing:
            left_out.append(f"{one.name} is left out: missing {'; '.join(shortened(one.graph.missing))}")
        else:
            planned.append(one)
    return planned, left_out


def failures(planned: PlannedExperiment, failed: Mapping[str, str]) -> dict[str, str]:
    """Why recipes failed, by name, from why runs did: those that are the same run too."""
    return {recipe: why for run, why in failed.items() for recipe in planned.runs.get(run, [run])}


def _manifest(resolved: ResolvedExperiment, graph: Graph) -> Manifest:
    """Which artifacts are behind each row and seed."""
    experiment, inputs, first = resolved.experiment, resolved.inputs, resolved.seeds[0]
    given = inputs.model_dump(exclude={"settings"}, exclude_none=True)
    given |= {f"set {key}": value for key, value in inputs.assignments().items()}
    settings, labels = {}, {}
    for row in experiment.rows:
        loaded = resolved.recipes[row.key, first]
        settings[row.recipe] = tuple(
            (key, _without_places(value), origin) for key, value, origin in settings_of(loaded.recipe, loaded.settings)
        )
        labels[loaded.recipe.name] = ", ".join(part for part in (row.group, row.label) if part not in ("", "-"))
    same = ([labels[recipe] for recipe in recipes if recipe in labels] for recipes in _alike(graph))
    return Manifest(
        experiment=experiment,
        scale=resolved.scale,
        lengths=resolved.lengths,
        about=resolved.about,
        command=resolved.command,
        inputs={name: last_part(value) for name, value in given.items()},
        recipes=settings,
        rows=tuple(
            _row(row, seed, resolved.recipes[row.key, seed].recipe.name, graph)
            for seed in resolved.seeds
            for row in experiment.rows
        ),
        divergences=(
            *resolved.notes,
            *(f"The same run, made once: {' and '.join(names)}." for names in same if len(names) > 1),
        ),
    )


def _alike(graph: Graph) -> list[list[str]]:
    """Recipes that are the same run: a run is what its evaluations are, with all behind."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for recipe, leaves in graph.evaluations.items():
        alike.setdefault(tuple(leaf.fingerprint for leaf in leaves), []).append(recipe)
    return list(alike.values())


def _row(row: Row, seed: int, recipe: str, graph: Graph) -> RowEntry:
    units = [
        UnitEntry(
            unit=stage.unit.id,
            benchmark=stage.unit.benchmark,
            task=stage.unit.task,
            length_tokens=stage.unit.length_tokens,
            address=node.address,
            fingerprint=node.fingerprint,
            n_expected=stage.evaluation.ruler.samples if stage.unit.benchmark == "ruler" else None,
        )
        for node in graph.evaluations.get(recipe, ())
        if isinstance(stage := node.stage, Evaluate) and row.unit in (None, stage.unit.id)
    ]
    node = graph.trained.get(recipe)
    train = StageEntry(address=node.address, fingerprint=node.fingerprint) if node else None
    return RowEntry(row=row.key, recipe=row.recipe, seed=seed, units=tuple(units), train=train)


def _without_places(value: Any) -> Any:
    """A setting as others may see it: of absolute paths the last part."""
    if isinstance(value, dict):
        return {key: _without_places(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(part) for part in value]
    return last_part(value) if isinstance(value, str) else value
