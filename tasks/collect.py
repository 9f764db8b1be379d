"""From a target to its recipes and plan, and from records to its files. Loads neither torch nor Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.planted import planted_distances
from tokenweight.evaluation.stages import Evaluate
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline import Store
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import shortened
from tokenweight.recipes import Inputs, Loaded, check_settings, load_all, load_each, names, seeded
from tokenweight.recipes.ablations import PHI2_ID
from tokenweight.recipes.inputs import told
from tokenweight.recipes.schema import HubBase, PretrainBase, Scale
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import write_figures
from tokenweight.reports.manifest import Manifest, RowEntry, StageEntry, UnitEntry
from tokenweight.reports.measures import Perplexity, PhraseToken, Pmi, SampleMean, TaskMean, UnitMean
from tokenweight.reports.model import Report, Style
from tokenweight.reports.styles import styled
from tokenweight.reports.targets import TARGETS, get_target
from tokenweight.reports.targets.model import Target
from tokenweight.reports.writing import FORMATS, write_report

ALL = "paper"  # the name that stands for every target of the paper


@dataclass(frozen=True)
class Planned:
    """A target at a scale: what it is, its recipes, and the artifacts they need."""

    target: Target
    scale: Scale
    seeds: int
    recipes: list[Loaded]
    graph: Graph
    inputs: Inputs = field(default_factory=Inputs)


def plan_target(name: str, scale: Scale, inputs: Inputs, store: Store, seeds: int | None = None) -> Planned:
    """Resolve a target, each recipe with seeds 0 to `seeds` - 1 (None: as many as the target says).

    Raises UserError for an unknown one and for inputs that do not fit.
    """
    chosen = _recipes_of(name, scale, inputs, seeds)
    check_settings(chosen.recipes, inputs)
    return _with_graph(chosen, store)


def _recipes_of(name: str, scale: Scale, inputs: Inputs, seeds: int | None) -> Planned:
    """A target and its recipes, without the artifacts; settings that none of the recipes knows are not judged."""
    if name not in ready_targets():
        raise UserError(f"target {name!r}: unknown; choose one of {', '.join(ready_targets())}, or {ALL} for all")
    target = get_target(name)
    if target.compares_corpora and inputs.corpus:
        raise UserError(
            f"{name}: compares two corpora, and --corpus would take the place of both, so that all differences were 0; "
            "leave --corpus out"
        )
    count = seeds or target.seeds
    wanted = [seeded(recipe, seed) for seed in range(count) for recipe in target.recipes]
    return Planned(target, scale, count, load_each(wanted, scale, inputs), Graph(), inputs)


def _with_graph(chosen: Planned, store: Store) -> Planned:
    graph = Planner(store).graph(chosen.recipes, benchmarks(chosen.target, manifest(chosen)))
    return replace(chosen, graph=graph)


def plan_targets(
    name: str,
    scale: Scale,
    inputs: Inputs,
    store: Store,
    seeds: int | None = None,
    also: Sequence[str] = (),
) -> tuple[list[Planned], list[str]]:
    """Plans of every target that a name stands for and of those in `also`; why some are left out of "paper", a line each.

    Left out are those that the user's inputs do not allow or that lack a text of the user's own; asked for by name they
    are refused. A setting must be one of some recipe of some target, not of each target.
    """
    chosen, left_out = [], []
    for target in (*targets_of(name), *also):
        if name == ALL and TARGETS[target].compares_corpora and inputs.corpus:
            left_out.append(f"{target} is left out: it compares two corpora, and --corpus takes the place of both")
        else:
            chosen.append(_recipes_of(target, scale, inputs, seeds))
    check_settings([recipe for each in chosen for recipe in each.recipes], inputs)
    wanted = []
    for each in chosen:
        planned = _with_graph(each, store)
        if name == ALL and planned.target.own_text and planned.graph.missing:
            left_out.append(f"{planned.target.name} is left out: missing {'; '.join(shortened(planned.graph.missing))}")
            continue
        wanted.append(planned)
    return wanted, left_out


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
        elif isinstance(measure, PhraseToken):
            used.add("phrase")
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
                units=tuple(
                    entry
                    for node in planned.graph.evaluations.get(seeded(row.recipe, seed), ())
                    if (entry := unit_entry(node)).unit == row.unit or row.unit is None
                ),
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
        divergences=(
            *told(planned.inputs),
            *departures(planned.recipes, load_all(list(planned.target.recipes), "paper")),
        ),
    )


def departures(recipes: list[Loaded], at_paper: list[Loaded]) -> tuple[str, ...]:
    """Where models stand for others than those that the paper's own recipes name, a sentence each."""
    paper = {loaded.recipe.name: loaded.recipe for loaded in at_paper}
    pairs = [(loaded.recipe, paper[loaded.recipe.name]) for loaded in recipes if loaded.recipe.name in paper]
    found: dict[str, None] = {}
    for ours, theirs in pairs:
        base, of_paper = ours.base, theirs.base
        small = isinstance(base, PretrainBase) and isinstance(of_paper, HubBase) and of_paper.repo_id == PHI2_ID
        if small:
            found["In place of Phi-2 stands a small model of its architecture, pre-trained by the pipeline."] = None
        factors = [
            recipe.extension.long_tokens / recipe.base.context_tokens for recipe in (ours, theirs) if recipe.extension
        ]
        if len(set(factors)) == 2:
            found[f"The context is extended by a factor of {factors[0]:g}; the paper's by {factors[1]:g}."] = None
    scorers = [
        theirs.scorer.model.repo_id.rpartition("/")[2]
        for ours, theirs in pairs
        if ours.scorer and isinstance(ours.scorer.model, PretrainBase)
        and theirs.scorer and isinstance(theirs.scorer.model, HubBase)
    ]  # fmt: skip
    if scorers:
        names = ", ".join(dict.fromkeys(scorers))
        found[f"In place of the scorers {names} stand small models, pre-trained by the pipeline."] = None
    return tuple(found)


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
    if figures:
        drawn = styled(report, "ours") if style == "ours" else report
        files |= write_figures(planned.target, drawn, described, store.root, out_dir)
    return report, files


def unit_entry(artifact: Artifact) -> UnitEntry:
    """An evaluation's artifact as a manifest names it."""
    stage = artifact.stage
    if not isinstance(stage, Evaluate):
        raise TypeError(f"{artifact.address} is not an evaluation")
    return UnitEntry(
        unit=stage.unit.id,
        benchmark=stage.unit.benchmark,
        task=stage.unit.task,
        length_tokens=stage.unit.length_tokens,
        address=artifact.address,
        fingerprint=artifact.fingerprint,
        n_expected=stage.evaluation.ruler.samples if stage.unit.benchmark == "ruler" else None,
    )


def _stage(artifact: Artifact | None) -> StageEntry | None:
    return StageEntry(address=artifact.address, fingerprint=artifact.fingerprint) if artifact else None
