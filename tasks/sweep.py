"""Today's names for sweeps, until commands and flows call `sweep_experiment` and `plan_experiment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenweight.pipeline import Store
from tokenweight.pipeline.manifest import keep_manifest, with_failures
from tokenweight.planning.experiments import SHARED, PlannedExperiment, failures, plan_experiment
from tokenweight.planning.plan import PlanEntry, check_before_running, schedule
from tokenweight.recipes.cited import chosen_names
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.schema import Execution, Scale
from tokenweight.recipes.user import SWEPT_ON as DEFAULT
from tokenweight.reports.model import Report
from tokenweight.reports.targets.user import resolve_user, sweep_experiment
from tokenweight.reports.write_results import write_results

__all__ = ["DEFAULT", "SHARED", "PlannedSweep", "check", "chosen_measures", "collect_sweep", "plan_sweep"]
PlannedSweep = PlannedExperiment
MEASURES = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "planted")


def chosen_measures(text: str | None) -> tuple[str, ...]:
    """Comma-separated benchmarks in their own order; None: RULER, LongBench, MMLU. UserError for others."""
    return chosen_names("--measures", text, MEASURES) if text else DEFAULT


def plan_sweep(
    recipes: Sequence[str],
    over: Sequence[str],
    explicit: Sequence[str],
    scale: Scale,
    inputs: Inputs,
    name: str | None,
    benchmarks: Sequence[str],
    store: Store,
) -> PlannedExperiment:
    """A sweep planned. UserError for what does not fit."""
    return plan_experiment(
        resolve_user(sweep_experiment(recipes, over, explicit, benchmarks, name), scale, inputs), store
    )


def check(planned: PlannedExperiment, store: Store, execution: Execution) -> list[PlanEntry]:
    """What the whole sweep lacks. UserError where some of it cannot be made: before anything is."""
    steps = schedule(planned.graph, store)
    check_before_running([planned.graph], store, execution, [steps])
    return [step for step in steps if step.action != "reuse"]


def collect_sweep(
    planned: PlannedExperiment,
    store: Store,
    out_dir: Path,
    failed: Mapping[str, str] | None = None,
    figures: bool = True,
) -> tuple[Report, dict[str, Path]]:
    """The results of a sweep, with why runs failed."""
    manifest = with_failures(planned.manifest, failures(planned, failed or {}))
    written = write_results(manifest, store.root, out_dir, figures=figures)
    keep_manifest(manifest, store.root)
    return written
