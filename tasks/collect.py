"""Today's names for `find_experiments`, `plan_experiments` and `write_results`, until commands and flows call these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenweight.pipeline import Store
from tokenweight.pipeline.experiment import Experiment
from tokenweight.pipeline.manifest import Manifest, keep_manifest
from tokenweight.planning.experiments import PlannedExperiment, plan_experiments
from tokenweight.recipes import Inputs, Loaded
from tokenweight.recipes.schema import Scale
from tokenweight.reports.model import Report, Style
from tokenweight.reports.targets import ALL, TARGETS
from tokenweight.reports.targets.find import find_experiments, targets_of
from tokenweight.reports.write_results import write_results
from tokenweight.reports.writing import FORMATS

__all__ = ["ALL", "Planned", "collect", "manifest", "plan_target", "plan_targets", "ready_targets", "targets_of"]


class Planned(PlannedExperiment):
    """A planned experiment by today's names."""

    @property
    def target(self) -> Experiment:
        return self.resolved.experiment

    @property
    def scale(self) -> Scale:
        return self.resolved.scale  # type: ignore[return-value]

    @property
    def seeds(self) -> int:
        return len(self.resolved.seeds)

    @property
    def recipes(self) -> list[Loaded]:
        return self.resolved.loaded

    @property
    def inputs(self) -> Inputs:
        return self.resolved.inputs


def plan_target(name: str, scale: Scale, inputs: Inputs, store: Store, seeds: int | None = None) -> Planned:
    """One target planned."""
    return plan_targets(name, scale, inputs, store, seeds)[0][0]


def plan_targets(
    name: str, scale: Scale, inputs: Inputs, store: Store, seeds: int | None = None, also: Sequence[str] = ()
) -> tuple[list[Planned], list[str]]:
    """Every target that a name stands for, and those in `also`, planned; and what is left out."""
    found, left_out = find_experiments([name, *also], scale, inputs, seeds)
    planned, without_text = plan_experiments(found, store, skip_without_text=name == ALL)
    return [Planned(one.resolved, one.graph, one.manifest) for one in planned], [*left_out, *without_text]


def ready_targets() -> list[str]:
    """All targets."""
    return list(TARGETS)


def manifest(planned: PlannedExperiment) -> Manifest:
    """The plan's."""
    return planned.manifest


def collect(
    planned: PlannedExperiment,
    store: Store,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    style: Style = "both",
    figures: bool = True,
) -> tuple[Report, dict[str, Path]]:
    """The results of a plan."""
    written = write_results(planned.manifest, store.root, out_dir, formats, style, figures)
    if style != "paper":
        keep_manifest(planned.manifest, store.root)
    return written
