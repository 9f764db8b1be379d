"""Making a piece, in whatever process: an artifact, or the units of one checkpoint and benchmark with one loaded model."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError
from tokenweight.evaluation.stages import Evaluate
from tokenweight.pipeline import Build, Store
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Note, locate
from tokenweight.pipeline.store import made as make
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import schedule
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import pieces_of

Loaded = Callable[[Artifact, Path], Any]  # the LoadedModel of an evaluation, from a checkpoint's directory


def run_in_order(graph: Graph, store: Store, execution: Execution) -> None:
    """A plain loop for scripts and notebooks: what a graph's recipes need and the store does not hold, in this process."""
    for piece in pieces_of([graph], [schedule(graph, store)]):
        if not piece.reused:
            make_piece(piece.artifacts, store, execution)


def make_piece(
    artifacts: list[Artifact],
    store: Store,
    execution: Execution,
    progress: Progress = no_progress,
    note: Note = lambda message: None,
    loaded: Loaded | None = None,
) -> int:
    """Make those of a piece's artifacts that the store does not hold; how many. `loaded` gives the model of an evaluation."""
    if isinstance(artifacts[0].stage, Evaluate):
        return _evaluate_units(artifacts, store, execution, progress, note, loaded)
    made = 0
    for done, artifact in enumerate(artifacts, start=1):
        made += not make(artifact, store, execution, progress, note)
        if len(artifacts) > 1:
            progress(done, len(artifacts), "artifacts")
    return made


def _evaluate_units(
    artifacts: list[Artifact], store: Store, execution: Execution, progress: Progress, note: Note, loaded: Loaded | None
) -> int:
    """Where the store has a unit's outputs, scored in another way, they are scored again and no model is asked."""
    from tokenweight.evaluation.benchmark import UnitRun
    from tokenweight.evaluation.rescoring import StoredOutputs, rescore_unit
    from tokenweight.evaluation.run import evaluate_checkpoint
    from tokenweight.evaluation.units import benchmark_of

    held: dict[str, tuple[ExitStack, Build]] = {}  # by unit
    jobs: list[UnitRun] = []
    outputs, made = StoredOutputs(store), 0

    def publish(unit: str) -> None:
        """Put a unit's summary into its record and its directory into the store."""
        lease, build = held.pop(unit)
        build.facts.update(json.loads((build.directory / "summary.json").read_text()))
        lease.close()

    with ExitStack() as leases:  # an error gives all up that are held: what a later run can use stays
        for artifact in artifacts:
            if store.state(artifact.identity).kind == "complete":
                continue
            lease = leases.enter_context(ExitStack())
            build = lease.enter_context(store.building(artifact.identity, note=note))
            if build is None:  # another run finished it while we waited
                lease.close()
                continue
            made += 1
            stage = _placed(artifact)
            held[stage.unit.id] = lease, build
            prepared = tuple(locate(one, store) for role, one in artifact.inputs.items() if role != "checkpoint")
            if scored := outputs.of(artifact.identity):
                classes = prepared[0] if benchmark_of(stage.unit).classes_in_prompts else None
                rescore_unit(scored, stage.unit, stage.evaluation, classes, build.directory)
                publish(stage.unit.id)
            else:
                jobs.append(UnitRun(unit=stage.unit, prepared_dirs=prepared, out_dir=build.directory))
        if jobs:
            stage = _placed(artifacts[0])
            checkpoint = locate(artifacts[0].inputs["checkpoint"], store)
            model = partial(loaded, artifacts[0], checkpoint) if loaded else None
            for unit in evaluate_checkpoint(
                checkpoint, jobs, stage.evaluation, stage.context_tokens, execution, progress, model
            ):
                publish(unit.id)
        if held:
            raise StageError(f"evaluation ended without results of {', '.join(sorted(held))}")
    return made


def _placed(artifact: Artifact) -> Evaluate:
    """With the paths of the data; settings of units of one benchmark differ in nothing that a group would read twice."""
    stage = artifact.stage.placed(artifact.sources)
    assert isinstance(stage, Evaluate)
    return stage
