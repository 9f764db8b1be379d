"""The stages of the pipeline as data: what each one needs to know, and in which order they come.

A stage's version enters its fingerprint: raise it when a change of code changes what the stage writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tokenweight.evaluation.units import Unit
from tokenweight.pipeline import Identity
from tokenweight.recipes.schema import (
    Chunking,
    Corpus,
    Evaluation,
    Extension,
    Parity,
    PretrainBase,
    RandomBase,
    Scorer,
    Training,
    Weighting,
)

StageName = Literal["prepare", "chunk", "pretrain", "initialize", "score", "extend", "train", "evaluate"]

# In the order in which they run: what is wrong with a configuration or with data shows before any long work.
STAGE_VERSIONS: dict[StageName, int] = {
    "initialize": 1,
    "prepare": 1,
    "chunk": 2,
    "pretrain": 1,
    "score": 1,
    "extend": 1,
    "train": 1,
    "evaluate": 1,
}


@dataclass(frozen=True)
class Checkpoint:
    """Where a model comes from. Exactly one of `path`, `hub` and `node` is given; `fingerprint` is its identity."""

    label: str
    fingerprint: str
    path: Path | None = None
    hub: tuple[str, str] | None = None  # (repo id, revision)
    node: Node | None = None


@dataclass(frozen=True)
class ChunkWork:
    corpus: Corpus
    chunking: Chunking
    tokenizer: Checkpoint
    short_tokens: int
    parity: Parity = "paper"


@dataclass(frozen=True)
class PrepareWork:
    unit: Unit
    evaluation: Evaluation
    tokenizer: Checkpoint
    context_tokens: int


@dataclass(frozen=True)
class PretrainWork:
    base: PretrainBase
    tokenizer: Checkpoint
    chunks: Node


@dataclass(frozen=True)
class InitializeWork:
    base: RandomBase
    tokenizer: Checkpoint


@dataclass(frozen=True)
class ScoreWork:
    model: Checkpoint
    chunks: Node
    scorer: Scorer
    sequences: int
    precision: Literal["fp32", "bf16"]
    tokenizer: Checkpoint  # of the model to be trained: the scorer must share its vocabulary
    parity: Parity = "paper"


@dataclass(frozen=True)
class ExtendWork:
    model: Checkpoint
    extension: Extension


@dataclass(frozen=True)
class TrainWork:
    model: Checkpoint
    chunks: Node
    scores: Node | None
    training: Training
    weighting: Weighting
    scorer: Scorer | None
    seed: int
    parity: Parity = "paper"


@dataclass(frozen=True)
class EvaluateWork:
    unit: Unit
    checkpoint: Checkpoint
    prepared: tuple[Node, ...]  # RULER, LongBench: the prompts; planted: sequences, and the frozen scorer's NLL of them
    evaluation: Evaluation
    context_tokens: int
    scorer: Checkpoint | None = None  # PMI, phrase: the model that reads the short windows; None: the checkpoint itself


Work = ChunkWork | PrepareWork | PretrainWork | InitializeWork | ScoreWork | ExtendWork | TrainWork | EvaluateWork


@dataclass(frozen=True)
class Node:
    """One artifact to be: its identity, the work that makes it, and the nodes it is made from."""

    identity: Identity
    work: Work = field(compare=False)
    inputs: tuple[Node, ...] = field(default=(), compare=False)

    @property
    def stage(self) -> StageName:
        """Name of the stage."""
        return self.identity.stage  # type: ignore[return-value]

    def __hash__(self) -> int:
        return hash(self.identity.fingerprint)
