"""From a sweep to its plan, and from records to its table and figure. Loads neither torch nor Prefect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.planted import planted_distances
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline import Store
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import PlanEntry, check_before_running, schedule
from tokenweight.recipes import Loaded, load_all
from tokenweight.recipes.cited import chosen_names
from tokenweight.recipes.inputs import told
from tokenweight.recipes.schema import Execution, Scale
from tokenweight.recipes.sweep import Member, Sweep, shown
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import write_figures
from tokenweight.reports.manifest import Manifest, RowEntry, StageEntry
from tokenweight.reports.model import Report
from tokenweight.reports.targets.sweep import COLUMNS, labels_of, sweep_target, symbols_of
from tokenweight.reports.writing import write_report
from tokenweight.tasks.collect import departures, unit_entry

SHARED = "what members share"  # a run that is no member's
DEFAULT = ("ruler", "longbench", "mmlu")  # what the paper's own ablations show
_SCALE_STATEMENTS: Mapping[Scale, str] = {
    "smoke": "Smoke scale: a tiny model on synthetic text, a few samples per task; its numbers say nothing of real models.",
    "mini": "Mini scale: a small model at an eighth of the paper's lengths or so; differences between members may mean something.",
    "paper": "Paper scale: the paper's models, data and lengths.",
}


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep at a scale, what its members are measured on, and the artifacts they need."""

    sweep: Sweep
    scale: Scale
    benchmarks: tuple[str, ...]
    graph: Graph

    @property
    def runs(self) -> dict[str, list[Member]]:
        """Members that are the same run, by the label of the first: a run is what its evaluations are, with all behind."""
        alike: dict[tuple[str, ...], list[Member]] = {}
        for member in self.sweep.members:
            nodes = self.graph.evaluations[member.loaded.recipe.name]
            alike.setdefault(tuple(node.identity.fingerprint for node in nodes), []).append(member)
        return {members[0].label: members for members in alike.values()}

    def graph_of(self, label: str, store: Store) -> Graph:
        """The artifacts of one run, by its label, or of SHARED. UserError for another label."""
        if label == SHARED:
            return Graph(artifacts=self.graph.artifacts, evaluations={SHARED: self.shared_to_make(store)})
        runs = self.runs
        if label not in runs:
            raise UserError(f"member {label!r}: is none of this sweep's; they are {', '.join(runs)}")
        return self.graph.part([runs[label][0].loaded.recipe.name])

    def to_make(self, label: str, store: Store) -> list[PlanEntry]:
        """What a run lacks in the store."""
        return [step for step in schedule(self.graph_of(label, store), store) if step.action != "reuse"]

    def shared_to_make(self, store: Store) -> list[Artifact]:
        """What several runs need and the store lacks: texts, prompts, base, scores."""
        counts: dict[Artifact, int] = {}
        for label in self.runs:
            for step in self.to_make(label, store):
                counts[step.artifact] = counts.get(step.artifact, 0) + 1
        return [node for node in self.graph.artifacts if counts.get(node, 0) > 1]


def chosen_measures(text: str | None) -> tuple[str, ...]:
    """Comma-separated benchmarks in their own order; None: RULER, LongBench, MMLU. UserError for others."""
    return chosen_names("--measures", text, [name for name in BENCHMARKS if name in COLUMNS]) if text else DEFAULT


def plan_sweep(sweep: Sweep, scale: Scale, benchmarks: tuple[str, ...], store: Store) -> PlannedSweep:
    """The artifacts of all members, each once. UserError for models and data that do not fit."""
    graph = Planner(store).graph([member.loaded for member in sweep.members], benchmarks)
    return PlannedSweep(sweep, scale, benchmarks, graph)


def check(planned: PlannedSweep, store: Store, execution: Execution) -> list[PlanEntry]:
    """What the whole sweep lacks. UserError where some of it cannot be made: before anything is."""
    steps = schedule(planned.graph, store)
    check_before_running([planned.graph], store, execution, [steps])
    return [step for step in steps if step.action != "reuse"]


def manifest(planned: PlannedSweep, failed: Mapping[str, str]) -> Manifest:
    """Which artifacts stand behind each member's row; `failed`: why runs of this time failed, by label."""
    recipes = {member.label: member.loaded.recipe for member in planned.sweep.members}
    evaluations = [recipe.evaluation for recipe in recipes.values()]
    trained = planned.graph.trained
    return Manifest(
        target=planned.sweep.name,
        scale=planned.scale,
        rows=tuple(
            RowEntry(
                row=label,
                recipe=recipe.name,
                units=tuple(unit_entry(node) for node in planned.graph.evaluations[recipe.name]),
                train=StageEntry(address=node.identity.address, fingerprint=node.identity.fingerprint)
                if (node := trained.get(recipe.name))
                else None,
            )
            for label, recipe in recipes.items()
        ),
        longbench_split_tokens=evaluations[0].longbench.split_tokens,
        longbench_length_unit=evaluations[0].longbench.length_unit,
        ruler_lengths_tokens=_union(evaluation.ruler.lengths_tokens for evaluation in evaluations),
        perplexity_lengths_tokens=_union(evaluation.perplexity.lengths_tokens for evaluation in evaluations),
        planted_distances_tokens=planted_distances(
            evaluations[0].planted.short_tokens, max(recipe.context_tokens for recipe in recipes.values())
        ),
        divergences=(*told(planned.sweep.inputs), *_said_of(planned), *_failures(planned, failed)),
    )


def collect_sweep(
    planned: PlannedSweep, store: Store, out_dir: Path, failed: Mapping[str, str] | None = None, figures: bool = True
) -> tuple[Report, dict[str, Path]]:
    """The table of the members from what the store holds, in all formats, and its figures."""
    sweep = planned.sweep
    recipes = list(dict.fromkeys(member.recipe for member in sweep.members))
    over = " and ".join(symbols_of(sweep.fields).values())
    title = f"Sweep of {recipes[0]} over {over}" if len(recipes) == 1 else f"Sweep over {over}"
    target = sweep_target(
        sweep.name, title, sweep.members, sweep.fields, planned.benchmarks, _SCALE_STATEMENTS[planned.scale]
    )
    described = manifest(planned, failed or {})
    report = build_report(described, store.root, target)
    files = write_report(report, out_dir)
    return report, files | (write_figures(target, report, described, store.root, out_dir) if figures else {})


def _said_of(planned: PlannedSweep) -> list[str]:
    """What is swept, which members are the same run, and where models stand for the paper's."""
    sweep = planned.sweep
    values = {field: dict.fromkeys(_values(sweep, field)) for field in sweep.fields}
    symbols, rows = symbols_of(sweep.fields), labels_of(sweep.members, sweep.fields).of_row
    told = [f"{symbols[field]} ({field}): {', '.join(found)}" for field, found in values.items()]
    same = [
        " and ".join(", ".join(filter(None, rows[member.label])) for member in members)
        for members in planned.runs.values()
        if len(members) > 1
    ]
    originals = [
        Loaded(member.loaded.recipe.model_copy(update={"name": member.recipe}), member.loaded.settings)
        for member in sweep.members
    ]
    at_paper = load_all(list(dict.fromkeys(member.recipe for member in sweep.members)), "paper")
    return [
        f"Swept: {'; '.join(told)}.",
        *(f"The same run, made once: {members}." for members in same),
        *departures(originals, at_paper),
    ]


def _values(sweep: Sweep, field: str) -> list[str]:
    return [shown(member.values[field]) for member in sweep.members if field in member.values]


def _failures(planned: PlannedSweep, failed: Mapping[str, str]) -> list[str]:
    rows = labels_of(planned.sweep.members, planned.sweep.fields).of_row
    by_reason: dict[str, list[str]] = {}
    for label, why in failed.items():
        by_reason.setdefault(why, []).append(", ".join(filter(None, rows[label])))
    return [f"Failed in this run: {' and '.join(members)}: {why}." for why, members in by_reason.items()]


def _union(lengths_tokens: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({length for lengths in lengths_tokens for length in lengths}))
