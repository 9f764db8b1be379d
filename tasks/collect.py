"""From a target to its recipes and plan, and from records to its files. Loads neither torch nor Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.units import BENCHMARKS, planted_distances
from tokenweight.graph import Graph, Planner
from tokenweight.recipes import Inputs, Loaded, load_all, names, seeded
from tokenweight.recipes.schema import Scale
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import write_figures
from tokenweight.reports.manifest import Manifest, RowEntry, StageEntry, UnitEntry
from tokenweight.reports.measures import Perplexity, Pmi, SampleMean, TaskMean, UnitMean
from tokenweight.reports.model import Report, Style
from tokenweight.reports.targets import TARGETS, get_target
from tokenweight.reports.targets.model import Target
from tokenweight.reports.writing import FORMATS, write_report
from tokenweight.stages import EvaluateWork, Node
from tokenweight.store import Store

ALL = "paper"  # the name that stands for every target of the paper


@dataclass(frozen=True)
class Planned:
    """A target at a scale: what it is, its recipes, and the artifacts they need."""

    target: Target
    scale: Scale
    seeds: int
    recipes: list[Loaded]
    graph: Graph


def plan_target(name: str, scale: Scale, inputs: Inputs, store: Store, seeds: int | None = None) -> Planned:
    """Resolve a target, each recipe with seeds 0 to `seeds` - 1 (None: as many as the target says).

    Raises UserError for an unknown one and for inputs that do not fit.
    """
    if name not in ready_targets():
        raise UserError(f"target {name!r}: unknown; choose one of {', '.join(ready_targets())}, or {ALL} for all")
    target = get_target(name)
    count = seeds or target.seeds
    wanted = [seeded(recipe, seed) for seed in range(count) for recipe in target.recipes]
    recipes = load_all(wanted, scale, inputs)
    planned = Planned(target, scale, count, recipes, Graph())
    graph = Planner(store).graph(recipes, benchmarks(target, manifest(planned)))
    return replace(planned, graph=graph)


def ready_targets() -> list[str]:
    """Targets whose recipes all exist."""
    recipes = set(names())
    return [name for name, target in TARGETS.items() if recipes.issuperset(target.recipes)]


def targets_of(name: str) -> list[str]:
    """The targets that a name stands for: every one of the paper for "paper", else itself."""
    return [target for target in ready_targets() if TARGETS[target].paper_place] if name == ALL else [name]


def benchmarks(target: Target, described: Manifest) -> tuple[str, ...]:
    """The benchmarks that a target's columns are measured on."""
    used = set()
    for column in target.columns(described):
        measure = column.measure
        if isinstance(measure, SampleMean | TaskMean | UnitMean):
            used.add(measure.benchmark)
        elif isinstance(measure, Perplexity):
            used.add("perplexity")
        elif isinstance(measure, Pmi):
            used.add("pmi")
    return tuple(name for name in BENCHMARKS if name in used)


def manifest(planned: Planned) -> Manifest:
    """Which artifacts stand behind each row of the target."""
    evaluation = planned.recipes[0].recipe.evaluation
    return Manifest(
        target=planned.target.name,
        scale=planned.scale,
        rows=tuple(
            RowEntry(
                row=row.key,
                recipe=row.recipe,
                seed=seed,
                units=tuple(unit_entry(node) for node in planned.graph.evaluations.get(seeded(row.recipe, seed), ())),
                train=_stage(planned.graph.trained.get(seeded(row.recipe, seed))),
            )
            for seed in range(planned.seeds)
            for row in planned.target.rows
        ),
        longbench_split_tokens=evaluation.longbench.split_tokens,
        longbench_length_unit=evaluation.longbench.length_unit,
        ruler_lengths_tokens=evaluation.ruler.lengths_tokens,
        perplexity_lengths_tokens=evaluation.perplexity.lengths_tokens,
        planted_distances_tokens=planted_distances(
            evaluation.planted.short_tokens, max(loaded.recipe.context_tokens for loaded in planned.recipes)
        ),
    )


def collect(
    planned: Planned,
    store: Store,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    style: Style = "both",
    figures: bool = True,
) -> tuple[Report, dict[str, Path]]:
    """Build the target's report from records and write its files, see :func:`write_report`, and its figures."""
    described = manifest(planned)
    report = build_report(described, store.root)
    files = write_report(report, out_dir, formats, style)
    return report, files | (write_figures(planned.target, report, described, store.root, out_dir) if figures else {})


def unit_entry(node: Node) -> UnitEntry:
    """An evaluation's artifact as a manifest names it."""
    work = node.work
    if not isinstance(work, EvaluateWork):
        raise TypeError(f"{node.identity.address} is not an evaluation")
    return UnitEntry(
        unit=work.unit.id,
        benchmark=work.unit.benchmark,
        task=work.unit.task,
        length_tokens=work.unit.length_tokens,
        address=node.identity.address,
        fingerprint=node.identity.fingerprint,
        n_expected=work.evaluation.ruler.samples if work.unit.benchmark == "ruler" else None,
    )


def _stage(node: Node | None) -> StageEntry | None:
    return StageEntry(address=node.identity.address, fingerprint=node.identity.fingerprint) if node else None
