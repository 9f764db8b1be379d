"""Evaluation of one checkpoint on one benchmark: many units, one loaded model, one artifact each."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError
from tokenweight.evaluation.stages import Evaluate
from tokenweight.pipeline import Build, Store
from tokenweight.pipeline.locate import locate
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Note
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution

Held = tuple[AbstractContextManager[Build | None], Build]


Loaded = Callable[[Artifact, Path], Any]  # the LoadedModel of an evaluation, from a checkpoint's directory


def evaluate_units(
    artifacts: list[Artifact],
    store: Store,
    execution: Execution,
    progress: Progress,
    note: Note = lambda message: None,
    loaded: Loaded | None = None,
) -> tuple[int, int]:
    """Evaluate those units that the store does not hold; all share a checkpoint. Returns (made, reused).

    Where the store has a unit's outputs, scored in another way, they are scored again and no model is asked. `loaded`
    gives the model where a caller keeps it.
    """
    from tokenweight.evaluation.benchmark import UnitRun
    from tokenweight.evaluation.rescoring import StoredOutputs, rescore_unit
    from tokenweight.evaluation.run import evaluate_checkpoint
    from tokenweight.evaluation.units import benchmark_of

    held: dict[str, Held] = {}
    jobs: list[UnitRun] = []
    outputs, made = StoredOutputs(store), 0
    try:
        for artifact in artifacts:
            if store.state(artifact.identity).kind == "whole":
                continue
            holder = store.building(artifact.identity, note=note)
            build = holder.__enter__()
            if build is None:  # another run finished it while we waited
                holder.__exit__(None, None, None)
                continue
            stage = _stage(artifact)
            held[stage.unit.id] = (holder, build)
            made += 1
            prepared = tuple(locate(one, store) for role, one in artifact.inputs.items() if role != "checkpoint")
            if scored := outputs.of(artifact.identity):
                classes = prepared[0] if benchmark_of(stage.unit).classes_in_prompts else None
                rescore_unit(scored, stage.unit, stage.evaluation, classes, build.directory)
                _publish(held.pop(stage.unit.id))
                continue
            jobs.append(UnitRun(unit=stage.unit, prepared_dirs=prepared, out_dir=build.directory))
        if jobs:
            stage = _stage(artifacts[0])
            directory = locate(artifacts[0].inputs["checkpoint"], store)
            model = partial(loaded, artifacts[0], directory) if loaded else None
            for unit in evaluate_checkpoint(
                directory, jobs, stage.evaluation, stage.context_tokens, execution, progress, model
            ):
                _publish(held.pop(unit.id))
    except BaseException as error:
        _abandon(held, error)
        raise
    if held:
        unfinished = StageError(f"evaluation ended without results of {', '.join(sorted(held))}")
        _abandon(held, unfinished)
        raise unfinished
    return made, len(artifacts) - made


def _publish(finished: Held) -> None:
    """Put a unit's summary into its record and its directory into the store."""
    holder, build = finished
    build.facts.update(_summary(build))
    holder.__exit__(None, None, None)


def _stage(artifact: Artifact) -> Evaluate:
    """With the paths of the data; settings of units of one benchmark differ in nothing that a group would read twice."""
    stage = artifact.stage.placed(artifact.sources)
    if not isinstance(stage, Evaluate):
        raise TypeError(f"{artifact.address} is not an evaluation")
    return stage


def _summary(build: Build) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((build.directory / "summary.json").read_text())
    return summary


def _abandon(held: dict[str, Held], error: BaseException) -> None:
    """Give up artifacts in the making: their leases go, what a later run can use stays."""
    for holder, _ in held.values():
        try:
            holder.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error:
                raise
