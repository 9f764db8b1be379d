"""What a run works on at a time: one artifact, or all units of one checkpoint and benchmark; in which order, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from tokenweight.errors import StageError
from tokenweight.evaluation.units import Evaluate, Prepare, benchmark_of
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Build, Note, Store, locate
from tokenweight.planning.costs import seconds_timed
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.recipe import seed_of
from tokenweight.recipes.schema import Backend, Execution, Precision
from tokenweight.training.stages import Score

LONG: tuple[str, ...] = ("pretrain", "score", "train")  # keep a GPU busy: few at a time
ON_GPUS: tuple[str, ...] = (*LONG, "evaluate")
Loaded = Callable[[Artifact, Path], Any]  # the LoadedModel of an evaluation, from a checkpoint's directory


class ModelKey(NamedTuple):
    """Equal for evaluations that can share a loaded model."""

    checkpoint: str  # its fingerprint
    context_tokens: int
    precision: Precision
    backend: Backend


@dataclass(eq=False)
class Piece:
    """One task run. `artifacts` is what it makes, empty where everything is reused.

    `experiment` and `seed`, the first that wants it, are its place in the run's order: whole seeds come one after the other.
    """

    label: str
    stage: str
    experiment: int
    seed: int = 0
    artifacts: list[Artifact] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # of what is reused
    parents: list[Piece] = field(default_factory=list)
    is_quickest: bool = False  # of its model's evaluations

    @property
    def reused(self) -> bool:
        return not self.artifacts

    @property
    def is_long(self) -> bool:
        """Whether it fills a good part of a GPU."""
        return self.stage in LONG

    @property
    def model(self) -> ModelKey | None:
        """What a worker loads for it and keeps for the next one; None: nothing to keep."""
        return model_key(self.artifacts[0]) if self.artifacts and self.stage == "evaluate" else None

    def gpus(self, execution: Execution) -> int:
        """How many GPUs it computes on, where there are any."""
        if self.stage == "evaluate":
            return execution.tensor_parallel
        return execution.processes_per_node if self.is_long else 0


def model_key(artifact: Artifact) -> ModelKey:
    stage = artifact.stage
    assert isinstance(stage, Evaluate)
    checkpoint, evaluation = artifact.inputs["checkpoint"], stage.evaluation
    return ModelKey(checkpoint.fingerprint, stage.context_tokens, evaluation.precision, evaluation.backend)


def pieces_of(graphs: Sequence[Graph], plans: Sequence[Sequence[PlanEntry]], *, by_length: bool = False) -> list[Piece]:
    """The pieces of several plans, in their order, nothing twice; parents come before their children.

    `by_length`: units with prompts of their own apart, by length or else by task, so that the first can begin and GPUs share them.
    """
    pieces: dict[Hashable, Piece] = {}
    piece_of: dict[Artifact, Piece] = {}
    for experiment, (graph, plan) in enumerate(zip(graphs, plans, strict=True)):
        for entry in plan:
            artifact = entry.artifact
            if artifact in piece_of:
                continue
            key, label = _piece_of(artifact, graph, experiment, by_length)
            seed = min(map(seed_of, graph.wanted_by(artifact)), default=0)
            piece = pieces.setdefault(key, Piece(label, artifact.stage.name, experiment, seed))
            piece_of[artifact] = piece
            if entry.action == "reuse":
                piece.reasons.append(entry.reason)
            else:
                piece.artifacts.append(artifact)
            parents = [piece_of[parent] for parent in artifact.parents if parent in piece_of]
            piece.parents = list(dict.fromkeys([*piece.parents, *parents]))
    of_models: dict[Hashable, list[Piece]] = {}
    for piece in pieces.values():
        if piece.model is not None:
            of_models.setdefault((piece.experiment, piece.seed, piece.model), []).append(piece)
    for evaluations in of_models.values():
        min(evaluations, key=lambda piece: sum(map(seconds_timed, piece.artifacts))).is_quickest = True
    return list(pieces.values())


def _piece_of(artifact: Artifact, graph: Graph, experiment: int, by_length: bool) -> tuple[Hashable, str]:
    """What is equal for the artifacts of a piece, and what the page calls it, e.g. `train table-3/uniform`, the first recipe."""
    shared: tuple[Hashable, ...]
    match artifact.stage:
        case Evaluate() as stage:
            unit, scorer = stage.unit, artifact.inputs.get("scorer")
            part = str(unit.length_tokens or unit.task) if by_length and benchmark_of(unit).prompted else ""
            name = " ".join(filter(None, [graph.wanted_by(artifact)[0], benchmark_of(unit).asked, part]))
            shared = model_key(artifact), benchmark_of(unit).asked, scorer and scorer.fingerprint, part
        case Prepare() as stage:
            name = f"{stage.unit.benchmark} {stage.unit.length_tokens or stage.context_tokens}"
            shared = name, artifact.inputs["tokenizer"].fingerprint
        case Score() as stage:
            name = f"{artifact.identity.name} by {stage.short_tokens}"  # tokens that the model sees at a time
            shared = (artifact.fingerprint,)
        case stage:
            name = graph.wanted_by(artifact)[0] if stage.name in ("train", "extend") else artifact.identity.name
            shared = (artifact.fingerprint,)
    return (experiment, stage.name, *shared), f"{stage.name} {name}"


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
    count = 0
    for done, artifact in enumerate(artifacts, start=1):
        with store.building(artifact.identity, note=note) as work:
            if work is not None:
                inputs = {role: locate(one, store, small=role == "tokenizer") for role, one in artifact.inputs.items()}
                stage = artifact.stage.placed(artifact.sources)
                work.facts.update(stage.run(inputs, work.directory, execution, progress))
                for remark in work.facts.get("remarks", ()):
                    note(f"{artifact.address}: {remark}")
                count += 1
        if len(artifacts) > 1:
            progress(done, len(artifacts), "artifacts")
    return count


def _evaluate_units(
    artifacts: list[Artifact], store: Store, execution: Execution, progress: Progress, note: Note, loaded: Loaded | None
) -> int:
    """Where the store has a unit's outputs, scored in another way, they are scored again and no model is asked."""
    from tokenweight.evaluation.benchmark import UnitRun
    from tokenweight.evaluation.run import StoredOutputs, evaluate_checkpoint, rescore_unit

    held: dict[str, tuple[ExitStack, Build]] = {}  # by unit
    jobs: list[UnitRun] = []
    outputs, count = StoredOutputs(store), 0

    def publish(unit: str) -> None:
        lease, build = held.pop(unit)
        build.facts.update(json.loads((build.directory / "summary.json").read_text("utf-8")))
        lease.close()

    with ExitStack() as leases:  # an error gives all up that are held: what a later run can use stays
        for artifact in artifacts:
            lease = leases.enter_context(ExitStack())
            build = lease.enter_context(store.building(artifact.identity, note=note))
            if build is None:  # it is there, if only since we waited
                lease.close()
                continue
            count += 1
            stage = cast(Evaluate, artifact.stage.placed(artifact.sources))  # with the paths of the data
            held[stage.unit.id] = lease, build
            prepared = tuple(locate(one, store) for role, one in artifact.inputs.items() if role != "checkpoint")
            if scored := outputs.of(artifact.identity):
                classes = prepared[0] if benchmark_of(stage.unit).classes_in_prompts else None
                rescore_unit(scored, stage.unit, stage.evaluation, classes, build.directory)
                publish(stage.unit.id)
            else:
                jobs.append(UnitRun(unit=stage.unit, prepared_dirs=prepared, out_dir=build.directory))
        if jobs:
            stage = cast(Evaluate, artifacts[0].stage.placed(artifacts[0].sources))
            is_elsewhere = stage.evaluation.backend == "endpoint"  # here only its tokenizer is needed
            checkpoint = locate(artifacts[0].inputs["checkpoint"], store, small=is_elsewhere)
            model = partial(loaded, artifacts[0], checkpoint) if loaded else None
            for unit in evaluate_checkpoint(
                checkpoint, jobs, stage.evaluation, stage.context_tokens, execution, progress, model
            ):
                publish(unit.id)
        if held:
            raise StageError(f"evaluation ended without results of {', '.join(sorted(held))}")
    return count
