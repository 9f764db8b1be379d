"""What each artifact of a plan costs, as far as there is a basis for it; what has none is absent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenweight.model_configs import config_of, parameters
from tokenweight.planning.cost_model import gpu_hours, scoring_flops, training_flops, training_memory
from tokenweight.planning.costs import LONG_TOKENS, PG19_SEQUENCES
from tokenweight.recipes.corpora import PG19
from tokenweight.recipes.schema import Execution, NovelCorpus, Weighting
from tokenweight.stages import (
    Checkpoint,
    ChunkWork,
    EvaluateWork,
    ExtendWork,
    Node,
    PretrainWork,
    ScoreWork,
    TrainWork,
)

_TOKEN_BYTES = 4  # uint32; the novel's kind (1) and distance (4) beside it
_NOVEL_BYTES = 5
_SCORE_BYTES = 4
_WEIGHT_BYTES = {"bf16": 2, "fp32": 4}
# A checkpoint to go on from, bytes a parameter: fp32 weights and two moments, and with ZeRO the bf16 weights.
_CHECKPOINT_BYTES = {0: 12, 2: 14, 3: 14}
_CHECKPOINTS = 3  # two are kept, and the next is written before the oldest goes


@dataclass(frozen=True)
class StageCost:
    """None and empty: not known; 0: nothing."""

    flops: float | None = None  # of the models, without recomputation
    gpu_hours: dict[str, float] = field(default_factory=dict)  # by GPU
    disk_bytes: float | None = None  # that stay
    passing_bytes: float = 0.0  # beside them while it runs
    memory_bytes: float | None = None  # peak on each GPU
    lacks: str = ""  # why there are no GPU-hours, where a GPU works


def stage_cost(node: Node, execution: Execution) -> StageCost:
    """The cost of making one artifact."""
    match node.work:
        case ChunkWork() as work:
            return StageCost(flops=0.0, disk_bytes=_chunk_bytes(work))
        case ScoreWork() as work:
            return _score(work)
        case ExtendWork() as work:
            config = config_of(work.model)
            size = parameters(config) if config else None
            return StageCost(flops=0.0, disk_bytes=_WEIGHT_BYTES["bf16"] * size if size and work.model.hub else 0.0)
        case TrainWork() as work:
            return _train(work, execution)
        case PretrainWork() as work:
            return _pretrain(node, work, execution)
        case EvaluateWork():
            return StageCost(lacks="evaluation")
    return StageCost(flops=0.0)


@dataclass(frozen=True)
class Sum:
    """Costs of several artifacts; `lacks` and `no_disk` count those that have none."""

    flops: float
    gpu_hours: dict[str, float]
    disk_bytes: float
    passing_bytes: float  # the largest: one stage runs at a time
    memory_bytes: float | None  # the largest that is known
    lacks: dict[str, int]
    no_disk: dict[str, int]


def summed(costs: Iterable[tuple[Node, StageCost]]) -> Sum:
    """The sum, over what is known."""
    hours, lacks, no_disk = dict[str, float](), dict[str, int](), dict[str, int]()
    flops = disk = passing = 0.0
    memory: float | None = None
    for node, cost in costs:
        flops += cost.flops or 0.0
        passing = max(passing, cost.passing_bytes)
        for gpu, value in cost.gpu_hours.items():
            hours[gpu] = hours.get(gpu, 0.0) + value
        if cost.lacks:
            lacks[cost.lacks] = lacks.get(cost.lacks, 0) + 1
        if cost.disk_bytes is None:
            no_disk[node.stage] = no_disk.get(node.stage, 0) + 1
        disk += cost.disk_bytes or 0.0
        if cost.memory_bytes is not None:
            memory = max(memory or 0.0, cost.memory_bytes)
    return Sum(flops, hours, disk, passing, memory, lacks, no_disk)


def _chunk_bytes(work: ChunkWork) -> float | None:
    chunking = work.chunking
    sequences = chunking.sequences
    if sequences is None and work.corpus == PG19 and chunking.long_tokens == LONG_TOKENS:
        sequences = PG19_SEQUENCES  # other corpora that are chunked whole are not known beforehand
    if sequences is None:
        return None
    beside = _NOVEL_BYTES if isinstance(work.corpus, NovelCorpus) else 0
    return float(sequences * chunking.long_tokens * (_TOKEN_BYTES + beside))


def _long_tokens(chunks: Node) -> int:
    if not isinstance(chunks.work, ChunkWork):
        raise TypeError(f"{chunks.identity.address} holds no sequences")
    return chunks.work.chunking.long_tokens


def _score(work: ScoreWork) -> StageCost:
    tokens = _long_tokens(work.chunks)
    disk = float(work.sequences * (tokens - 1) * _SCORE_BYTES)
    config = config_of(work.model)
    size, each = (parameters(config), scoring_flops(config, tokens, work.scorer)) if config else (None, None)
    if size is None or each is None:
        return StageCost(disk_bytes=disk, lacks=_unknown(work.model))
    flops = each * work.sequences
    hours = gpu_hours(flops, config, size) if work.precision == "bf16" else {}
    return StageCost(flops, hours, disk, lacks="" if hours else "models smaller than any timed")


def _train(work: TrainWork, execution: Execution) -> StageCost:
    config, tokens = config_of(work.model), _long_tokens(work.chunks)
    if config is None:
        return StageCost(lacks=_unknown(work.model))
    sequences = work.training.steps * work.training.sequences_per_step
    each = training_flops(config, tokens, work.weighting, work.scorer, execution.checkpointing)
    return _trained(config, tokens, sequences, each, work.training.precision, execution)


def _pretrain(node: Node, work: PretrainWork, execution: Execution) -> StageCost:
    config = config_of(Checkpoint("", "", node=node))
    if config is None:
        return StageCost(lacks="models of unknown size")
    tokens, training = work.base.context_tokens, work.base.training
    each = training_flops(config, tokens, Weighting(), None, execution.checkpointing)
    return _trained(config, tokens, training.steps * training.sequences_per_step, each, training.precision, execution)


def _trained(
    config: object,
    tokens: int,
    sequences: int,
    each: tuple[float, float] | None,
    precision: str,
    execution: Execution,
) -> StageCost:
    size = parameters(config)
    if size is None or each is None:
        return StageCost(lacks="models of another family")
    model, done = (value * sequences for value in each)
    hours = gpu_hours(done, config, size) if precision == "bf16" else {}
    return StageCost(
        flops=model,
        gpu_hours=hours,
        disk_bytes=float(_WEIGHT_BYTES[precision] * size),
        passing_bytes=float(_CHECKPOINTS * _CHECKPOINT_BYTES[execution.deepspeed_stage] * size),
        memory_bytes=training_memory(config, size, tokens, execution),
        lacks="" if hours else "models smaller than any timed",
    )


def _unknown(model: Checkpoint) -> str:
    return f"{model.hub[0]}, whose size is not known here" if model.hub else "models of unknown size"
