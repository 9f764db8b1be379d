"""What each artifact of a plan costs, as far as there is a basis for it; what has none is absent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenweight.context.stages import Extend
from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.stages import Evaluate
from tokenweight.model_configs import config_of, parameters
from tokenweight.pipeline.stage import Artifact, HubModel
from tokenweight.planning.cost_model import gpu_hours, scoring_flops, training_flops, training_memory
from tokenweight.planning.costs import LONG_TOKENS, PG19_SEQUENCES
from tokenweight.recipes.corpora import PG19
from tokenweight.recipes.schema import Execution, NovelCorpus, Scorer, Weighting
from tokenweight.training.stages import Pretrain, Score, Train

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


def stage_cost(artifact: Artifact, execution: Execution) -> StageCost:
    """The cost of making one artifact."""
    match artifact.stage:
        case Chunk() as stage:
            return StageCost(flops=0.0, disk_bytes=_chunk_bytes(stage))
        case Score() as stage:
            return _score(stage, artifact)
        case Extend():
            model = artifact.inputs["model"]
            config = config_of(model)
            size = parameters(config) if config else None
            fetched = isinstance(model.stage, HubModel)
            return StageCost(flops=0.0, disk_bytes=_WEIGHT_BYTES["bf16"] * size if size and fetched else 0.0)
        case Train() as stage:
            return _train(stage, artifact, execution)
        case Pretrain() as stage:
            return _pretrain(stage, artifact, execution)
        case Evaluate():
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


def summed(costs: Iterable[tuple[Artifact, StageCost]]) -> Sum:
    """The sum, over what is known."""
    hours, lacks, no_disk = dict[str, float](), dict[str, int](), dict[str, int]()
    flops = disk = passing = 0.0
    memory: float | None = None
    for artifact, cost in costs:
        flops += cost.flops or 0.0
        passing = max(passing, cost.passing_bytes)
        for gpu, value in cost.gpu_hours.items():
            hours[gpu] = hours.get(gpu, 0.0) + value
        if cost.lacks:
            lacks[cost.lacks] = lacks.get(cost.lacks, 0) + 1
        if cost.disk_bytes is None:
            no_disk[artifact.stage.name] = no_disk.get(artifact.stage.name, 0) + 1
        disk += cost.disk_bytes or 0.0
        if cost.memory_bytes is not None:
            memory = max(memory or 0.0, cost.memory_bytes)
    return Sum(flops, hours, disk, passing, memory, lacks, no_disk)


def _chunk_bytes(stage: Chunk) -> float | None:
    chunking = stage.chunking
    sequences = chunking.sequences
    if sequences is None and stage.corpus == PG19 and chunking.long_tokens == LONG_TOKENS:
        sequences = PG19_SEQUENCES  # other corpora that are chunked whole are not known beforehand
    if sequences is None:
        return None
    beside = _NOVEL_BYTES if isinstance(stage.corpus, NovelCorpus) else 0
    return float(sequences * chunking.long_tokens * (_TOKEN_BYTES + beside))


def _long_tokens(artifact: Artifact) -> int:
    chunks = artifact.inputs["chunks"].stage
    assert isinstance(chunks, Chunk)
    return chunks.chunking.long_tokens


def _score(stage: Score, artifact: Artifact) -> StageCost:
    tokens, model = _long_tokens(artifact), artifact.inputs["model"]
    disk = float(stage.sequences * (tokens - 1) * _SCORE_BYTES)
    config = config_of(model)
    scorer = Scorer(kind="frozen", short_tokens=stage.short_tokens, stride_tokens=stage.stride_tokens)
    size, each = (parameters(config), scoring_flops(config, tokens, scorer)) if config else (None, None)
    if size is None or each is None:
        return StageCost(disk_bytes=disk, lacks=_unknown(model))
    flops = each * stage.sequences
    hours = gpu_hours(flops, config, size) if stage.precision == "bf16" else {}
    return StageCost(flops, hours, disk, lacks="" if hours else "models smaller than any timed")


def _train(stage: Train, artifact: Artifact, execution: Execution) -> StageCost:
    config, tokens = config_of(artifact.inputs["model"]), _long_tokens(artifact)
    if config is None:
        return StageCost(lacks=_unknown(artifact.inputs["model"]))
    sequences = stage.training.steps * stage.training.sequences_per_step
    each = training_flops(config, tokens, stage.weighting, stage.scorer, execution.checkpointing)
    return _trained(config, tokens, sequences, each, stage.training.precision, execution)


def _pretrain(stage: Pretrain, artifact: Artifact, execution: Execution) -> StageCost:
    config = config_of(artifact)
    if config is None:
        return StageCost(lacks="models of unknown size")
    tokens, training = stage.context_tokens, stage.training
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


def _unknown(model: Artifact) -> str:
    stage = model.stage
    return f"{stage.repo_id}, whose size is not known here" if isinstance(stage, HubModel) else "models of unknown size"
