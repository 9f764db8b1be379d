"""What a run works on at a time: one artifact, or all units of one checkpoint and benchmark, with what it waits for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenweight.evaluation.stages import Evaluate, Prepare
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import PlanEntry
from tokenweight.recipes.schema import Backend, Execution, Precision

LONG: tuple[str, ...] = ("pretrain", "score", "train")  # keep a GPU busy: few at a time
ON_GPUS: tuple[str, ...] = (*LONG, "evaluate")


class ModelKey(NamedTuple):
    """Equal for evaluations that can share a loaded model."""

    checkpoint: str  # its fingerprint
    context_tokens: int
    precision: Precision
    backend: Backend


@dataclass(eq=False)
class Piece:
    """One task run. `artifacts` is what it makes, empty where everything is reused; `experiment` its place in the run's order."""

    label: str
    stage: str
    experiment: int
    artifacts: list[Artifact] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # of what is reused
    parents: list[Piece] = field(default_factory=list)

    @property
    def reused(self) -> bool:
        """Whether nothing is to be made."""
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
        if self.stage in LONG:
            return execution.processes_per_node
        return 0


def model_key(artifact: Artifact) -> ModelKey:
    """What an evaluation loads."""
    stage = artifact.stage
    if not isinstance(stage, Evaluate):
        raise TypeError(f"{artifact.address} is not an evaluation")
    checkpoint, evaluation = artifact.inputs["checkpoint"], stage.evaluation
    return ModelKey(checkpoint.fingerprint, stage.context_tokens, evaluation.precision, evaluation.backend)


def pieces_of(graphs: Sequence[Graph], plans: Sequence[Sequence[PlanEntry]], *, by_length: bool = False) -> list[Piece]:
    """The pieces of several plans, in their order, nothing twice; parents come before their children.

    `by_length`: RULER's units apart by length and LongBench's by task, so that several GPUs share them.
    """
    pieces: dict[Hashable, Piece] = {}
    piece_of: dict[Artifact, Piece] = {}
    for experiment, (graph, plan) in enumerate(zip(graphs, plans, strict=True)):
        for entry in plan:
            artifact = entry.artifact
            if artifact in piece_of:
                continue
            key = _key(artifact, experiment, by_length)
            piece = pieces.get(key)
            if piece is None:
                piece = pieces[key] = Piece(label(artifact, graph, by_length), artifact.stage.name, experiment)
            piece_of[artifact] = piece
            if entry.action == "reuse":
                piece.reasons.append(entry.reason)
            else:
                piece.artifacts.append(artifact)
    for artifact, piece in piece_of.items():
        for parent in artifact.parents:
            other = piece_of.get(parent)
            if other is not None and other is not piece and other not in piece.parents:
                piece.parents.append(other)
    return _parents_first(list(pieces.values()))


def _parents_first(pieces: list[Piece]) -> list[Piece]:
    ordered: dict[Piece, None] = {}

    def add(piece: Piece) -> None:
        for parent in piece.parents:
            if parent not in ordered:
                add(parent)
        ordered[piece] = None

    for piece in pieces:
        if piece not in ordered:
            add(piece)
    return list(ordered)


def _key(artifact: Artifact, experiment: int, by_length: bool) -> tuple[Hashable, ...]:
    """Equal for what belongs to one piece; experiments may ask for the same benchmark in different ways."""
    match artifact.stage:
        case Evaluate() as stage:
            scorer = artifact.inputs.get("scorer")
            shared = experiment, model_key(artifact), stage.unit.benchmark, scorer and scorer.fingerprint
            return (*shared, _part(stage)) if by_length else shared
        case Prepare() as stage:
            length = stage.unit.length_tokens or stage.context_tokens
            return experiment, "prepare", stage.unit.benchmark, length, artifact.inputs["tokenizer"].fingerprint
    return (artifact.fingerprint,)


def _part(stage: Evaluate) -> str | None:
    """What of a benchmark with many long prompts one worker takes at a time."""
    if stage.unit.benchmark == "ruler":
        return str(stage.unit.length_tokens)
    return stage.unit.task if stage.unit.benchmark == "longbench" else None


def label(artifact: Artifact, graph: Graph, by_length: bool = False) -> str:
    """What the page calls a piece, e.g. `train table-3/uniform` or `evaluate table-3/uniform ruler`."""
    match artifact.stage:
        case Evaluate() as stage:
            part = _part(stage) if by_length else None
            return " ".join(["evaluate", _owner(artifact, graph), stage.unit.benchmark, *([part] if part else [])])
        case Prepare() as stage:
            return f"prepare {stage.unit.benchmark} {stage.unit.length_tokens or stage.context_tokens}"
    name = artifact.stage.name
    return f"{name} {_owner(artifact, graph) if name in ('train', 'extend') else artifact.name}"


def _owner(artifact: Artifact, graph: Graph) -> str:
    """The first recipe that needs an artifact."""
    return graph.wanted_by(artifact)[0]
