"""What each artifact of a plan costs: GPU-hours of an H200, disk, memory of a GPU. What has no basis is absent and named.

GPU-hours are scaled from benchmarks/results (docs/plan.md; tests/planning/test_costs.py holds them against every
measurement): training and scoring by the model's FLOPs, evaluation by samples, parameters and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenweight.context.extend import Extend
from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.stages import Evaluate
from tokenweight.model_configs import config_of, parameters
from tokenweight.pipeline.stage import Artifact, HubModel
from tokenweight.recipes.schema import Execution, NovelCorpus, Scorer, Training
from tokenweight.training.flops import PEAK_FLOPS, attention_widths, forward_flops
from tokenweight.training.stages import Pretrain, Score, Train

GPU = "H200"
# Model FLOPs a second as a share of the peak, by model family: means of the measurements at 32k tokens.
TRAINING_MFU = {"llama": 0.48, "phi": 0.335}
SCORING_MFU = {"llama": 0.55, "phi": 0.405}
LEAST_PARAMETERS = 1e9  # smaller models were not timed, and do not fill a GPU
# Seconds of one GPU for a sample, of a model of 1.5 B parameters at 8k tokens.
EVALUATED_PARAMETERS, EVALUATED_TOKENS = 1_498_482_688, 8192
SAMPLE_SECONDS = {
    "bbh": 114.0 / 675,
    "longbench": 80.3 / 400,
    "ruler": 58.7 / 325,
    "mmlu": 21.9 / 1425,
    "perplexity": 2.2 / 8,
}
WHOLE_SAMPLES = {"bbh": 6511 / 27, "longbench": 3750 / 16, "mmlu": 14_042 / 57}  # of a task, where all are asked
PG19_ID, PG19_SEQUENCES, PG19_TOKENS = "emozilla/pg19", 70_000, 32_768  # Section 4, Datasets

_TOKEN_BYTES = 4  # uint32; the novel's kind (1) and distance (4) beside it
_NOVEL_BYTES = 5
_SCORE_BYTES = 4
_WEIGHT_BYTES = {"bf16": 2, "fp32": 4}
# A checkpoint to resume from, bytes a parameter: fp32 weights and two moments, and with ZeRO the bf16 weights.
_CHECKPOINT_BYTES = {0: 12, 2: 14, 3: 14}
_CHECKPOINTS = 3  # two are kept, and the next is written before the oldest goes
# ZeRO-3, bytes a parameter, shared by all processes: bf16 weights, fp32 master weights, gradients and two moments.
_STATE_BYTES = 2 + 4 + 4 + 8
# Fitted to the peaks of Llama-3 8B on two H200: gathered parameters and buffers, and the working set of one layer and
# the head in bytes for each token and each element of the model's and the MLP's width.
_FIXED_BYTES = 5.8 * 2**30
_WORKING_BYTES = 12.2
_TOO_SMALL = "models smaller than any timed"


@dataclass(frozen=True)
class StageCost:
    """None: not known; 0: nothing."""

    gpu_hours: float | None = None
    disk_bytes: float | None = None  # that stay
    passing_bytes: float = 0.0  # beside them while it runs
    memory_bytes: float | None = None  # peak on each GPU
    lacks: str = ""  # why there are no GPU-hours, where a GPU works


@dataclass(frozen=True)
class Sum:
    """Costs of several artifacts; `lacks` and `no_disk` count those that have none."""

    gpu_hours: float | None  # of those that have any; None where none has
    disk_bytes: float
    passing_bytes: float  # the largest: one stage trains at a time
    memory_bytes: float | None  # the largest that is known
    lacks: dict[str, int]
    no_disk: dict[str, int]


def summed(costs: Iterable[tuple[Artifact, StageCost]]) -> Sum:
    """The sum, over what is known."""
    lacks, no_disk = dict[str, int](), dict[str, int]()
    known = list(costs)
    for artifact, cost in known:
        if cost.lacks:
            lacks[cost.lacks] = lacks.get(cost.lacks, 0) + 1
        if cost.disk_bytes is None:
            no_disk[artifact.stage.name] = no_disk.get(artifact.stage.name, 0) + 1
    hours = [cost.gpu_hours for _, cost in known if cost.gpu_hours is not None]
    return Sum(
        sum(hours) if hours else None,
        sum(cost.disk_bytes or 0.0 for _, cost in known),
        max((cost.passing_bytes for _, cost in known), default=0.0),
        max((cost.memory_bytes for _, cost in known if cost.memory_bytes is not None), default=None),
        lacks,
        no_disk,
    )


def stage_cost(artifact: Artifact, execution: Execution) -> StageCost:
    """The cost of making one artifact."""
    match artifact.stage:
        case Chunk() as stage:
            return StageCost(disk_bytes=_chunk_bytes(stage))
        case Score() as stage:
            return _score(stage, artifact)
        case Extend():
            model = artifact.inputs["model"]
            size = parameters(config) if (config := config_of(model)) else None
            return StageCost(disk_bytes=_WEIGHT_BYTES["bf16"] * size if size and _fetched(model) else 0.0)
        case Train() as stage:
            return _train(artifact.inputs["model"], _long_tokens(artifact), stage.training, stage.scorer, execution)
        case Pretrain() as stage:
            return _train(artifact, stage.context_tokens, stage.training, None, execution)
        case Evaluate() as stage:
            return _evaluate(stage, artifact)
    return StageCost()


def _fetched(model: Artifact) -> str:
    """The hub's name of a model that comes from there."""
    return model.stage.repo_id if isinstance(model.stage, HubModel) else ""


def _chunk_bytes(stage: Chunk) -> float | None:
    chunking = stage.chunking
    sequences = chunking.sequences
    if (
        sequences is None
        and stage.corpus.kind == "hub"
        and stage.corpus.repo_id == PG19_ID
        and chunking.long_tokens == PG19_TOKENS
    ):
        sequences = PG19_SEQUENCES  # other corpora that are chunked whole are not known beforehand
    if sequences is None:
        return None
    beside = _NOVEL_BYTES if isinstance(stage.corpus, NovelCorpus) else 0
    return float(sequences * chunking.long_tokens * (_TOKEN_BYTES + beside))


def _long_tokens(artifact: Artifact) -> int:
    chunks = artifact.inputs["chunks"].stage
    if not isinstance(chunks, Chunk):
        raise TypeError(f"{chunks.name} holds no sequences")
    return chunks.chunking.long_tokens


def _score(stage: Score, artifact: Artifact) -> StageCost:
    tokens, model = _long_tokens(artifact), artifact.inputs["model"]
    scorer = Scorer(kind="frozen", short_tokens=stage.short_tokens, stride_tokens=stage.stride_tokens)
    disk = float(stage.sequences * (tokens - 1) * _SCORE_BYTES)
    hours = scoring_hours(config, tokens, stage.sequences, scorer) if (config := config_of(model)) else None
    return StageCost(hours, disk, lacks="" if hours is not None else _why_no_hours(model))


def _train(model: Artifact, tokens: int, training: Training, scorer: Scorer | None, execution: Execution) -> StageCost:
    config = config_of(model)
    size = parameters(config) if config else None
    if size is None:
        return StageCost(lacks=_why_no_hours(model))
    sequences = training.steps * training.sequences_per_step
    hours = training_hours(config, tokens, sequences, scorer) if training.precision == "bf16" else None
    return StageCost(
        hours,
        disk_bytes=float(_WEIGHT_BYTES[training.precision] * size),
        passing_bytes=float(_CHECKPOINTS * _CHECKPOINT_BYTES[execution.deepspeed_stage] * size),
        memory_bytes=training_memory(config, size, tokens, execution),
        lacks="" if hours is not None else _TOO_SMALL,
    )


def _evaluate(stage: Evaluate, artifact: Artifact) -> StageCost:
    """Samples times the seconds of one, by parameters and, where it grows with the context, by tokens."""
    name, model = stage.unit.benchmark, artifact.inputs["checkpoint"]
    if name not in SAMPLE_SECONDS:
        return StageCost(lacks=f"evaluation by {name}, which was not timed")
    size = parameters(config) if (config := config_of(model)) else None
    if size is None or size < LEAST_PARAMETERS:
        return StageCost(lacks=_why_no_hours(model))
    settings = getattr(stage.evaluation, name)
    samples = (settings.documents if name == "perplexity" else settings.samples) or WHOLE_SAMPLES.get(name)
    if samples is None:
        return StageCost(lacks="evaluation of a corpus whose documents are not counted yet")
    tokens = stage.unit.length_tokens or (stage.context_tokens if name == "longbench" else EVALUATED_TOKENS)
    seconds = samples * SAMPLE_SECONDS[name] * size / EVALUATED_PARAMETERS * tokens / EVALUATED_TOKENS
    return StageCost(seconds / 3600)


def training_hours(config: Any, tokens: int, sequences: int, scorer: Scorer | None) -> float | None:
    """GPU-hours of training on sequences of `tokens`, with an unfrozen scorer's windows; None where none was timed."""
    forward = forward_flops(config, tokens)
    if forward is None or (parameters(config) or 0) < LEAST_PARAMETERS:
        return None
    flops = 3 * (forward.layers + forward.head)
    if scorer and scorer.kind == "unfrozen":
        flops += _windows_flops(config, tokens, scorer)
    return _hours(flops * sequences, TRAINING_MFU[config.model_type])


def scoring_hours(config: Any, tokens: int, sequences: int, scorer: Scorer) -> float | None:
    """GPU-hours of a frozen scorer's windows over sequences of `tokens`; None where none was timed."""
    if forward_flops(config, tokens) is None or (parameters(config) or 0) < LEAST_PARAMETERS:
        return None
    return _hours(_windows_flops(config, tokens, scorer) * sequences, SCORING_MFU[config.model_type])


def _windows_flops(config: Any, tokens: int, scorer: Scorer) -> float:
    """Of one sequence; the head reads the scored positions. An unfrozen scorer takes the first window from the long pass."""
    first = scorer.kind != "unfrozen"
    window = forward_flops(config, scorer.short_tokens)
    positions = forward_flops(config, tokens - 1 if first else tokens - scorer.short_tokens)
    if window is None or positions is None:
        return 0.0
    later = -(-(tokens - scorer.short_tokens) // scorer.stride_tokens)
    return (later + first) * window.layers + positions.head


def _hours(flops: float, share: float) -> float:
    return flops / (PEAK_FLOPS[GPU] * share) / 3600


def _why_no_hours(model: Artifact) -> str:
    config = config_of(model)
    if config is None:
        return f"{_fetched(model)}, whose size is not known here" if _fetched(model) else "models of unknown size"
    return _TOO_SMALL if parameters(config) is not None else "models of another family"


def training_memory(config: Any, size: int, tokens: int, execution: Execution) -> float | None:
    """Peak bytes on each GPU while a model of `size` parameters trains on sequences of `tokens`; None where not measured.

    ZeRO-3 with recomputation alone: parameters, gradients, optimizer, activations kept and the working set of a layer.
    """
    if execution.deepspeed_stage != 3 or execution.checkpointing == "none" or size < LEAST_PARAMETERS:
        return None
    here = tokens * execution.micro_batch_sequences / execution.sequence_parallel
    width, (query, key) = config.hidden_size, attention_widths(config)
    kept = {
        "full": width,
        "keep_attention": width + query,
        "keep_projections": width + query + (query + 2 * key + width),
    }[execution.checkpointing]
    states = _STATE_BYTES * size / execution.processes
    activations = 2 * kept * config.num_hidden_layers * here
    working_set = _WORKING_BYTES * (width + config.intermediate_size) * here
    return float(states + activations + working_set + _FIXED_BYTES)
