"""What each artifact of a plan costs: GPU-hours of an H200, disk, memory of a GPU. What has no basis is absent and named.

GPU-hours are scaled from benchmarks/results (docs/plan.md; tests/planning/test_costs.py holds them against every
measurement): training and scoring by the model's FLOPs, evaluation by samples, parameters and tokens.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenweight.assets import shipped_config
from tokenweight.context.extend import Extend
from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.units import Evaluate, benchmark_of
from tokenweight.files import read_json
from tokenweight.pipeline.stage import Artifact, HubModel, LocalModel
from tokenweight.recipes.schema import Chunking, Execution, HubCorpus, Scorer
from tokenweight.training.flops import MLP_MATRICES, PEAK_FLOPS, attention_widths, forward_flops, train_flops
from tokenweight.training.stages import Initialize, Pretrain, Score, Select, Train, architecture_values

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_MFU: dict[str, dict[str, float]] = _TABLES["mfu"]  # of training and scoring, by family
GPU = "H200"
LEAST_PARAMETERS = 1e9  # smaller models do not fill a GPU, and were not timed but for training (mfu.least)

_BYTES: dict[str, Any] = _TABLES["bytes"]


@dataclass(frozen=True)
class Cost:
    """Of one artifact or of several; None: not known."""

    gpu_hours: float | None = None
    disk_bytes: float = 0.0  # that stay
    passing_bytes: float = 0.0  # beside them while it is made
    memory_bytes: float | None = None  # peak on each GPU
    unknown: dict[str, int] = field(default_factory=dict)  # what has no basis, and of how many artifacts


def summed(costs: Iterable[Cost]) -> Cost:
    """The sum over what is known; of what passes the most, as if one was made at a time."""
    known = list(costs)
    hours = [cost.gpu_hours for cost in known if cost.gpu_hours is not None]
    return Cost(
        sum(hours) if hours else None,
        sum(cost.disk_bytes for cost in known),
        max((cost.passing_bytes for cost in known), default=0.0),
        max((cost.memory_bytes for cost in known if cost.memory_bytes is not None), default=None),
        dict(sum((Counter(cost.unknown) for cost in known), Counter())),
    )


def stage_cost(artifact: Artifact, execution: Execution) -> Cost:
    match artifact.stage:
        case Chunk() | Select():
            sequences, tokens = _size(artifact)
            if sequences is None:
                return Cost(unknown={"disk of a corpus that is chunked whole": 1})
            disk = float(sequences * tokens * _BYTES["token"])
            match artifact.stage:
                case Chunk(corpus=HubCorpus(), chunking=Chunking(read="enough", long_document_factor=factor)):
                    return Cost(disk_bytes=disk, passing_bytes=factor * disk)
                case Chunk(corpus=HubCorpus(), chunking=Chunking(mixture="lcde")):
                    return Cost(disk_bytes=disk, unknown={"disk while a corpus of the hub is read whole": 1})
            return Cost(disk_bytes=disk)
        case Extend():
            return Cost(disk_bytes=float(_BYTES["weight"]["bf16"] * parameters(config_of(artifact.inputs["model"]))))
        case Score() as stage:
            model, (chunked, tokens) = artifact.inputs["model"], _size(artifact.inputs["chunks"])
            scorer = Scorer(kind="frozen", short_tokens=stage.short_tokens, stride_tokens=stage.stride_tokens)
            sequences = stage.sequences or chunked
            if sequences is None:
                return Cost(unknown={"scoring of a corpus that is chunked whole": 1})
            unknown = _untimed(model)
            hours = None if unknown else scoring_hours(config_of(model), tokens, sequences, scorer)
            return Cost(hours, float(sequences * (tokens - 1) * _BYTES["score"]), unknown=unknown)
        case Train() as stage:
            _, tokens = _size(artifact.inputs["chunks"])
            return _train(stage, artifact.inputs["model"], tokens, stage.scorer, execution)
        case Pretrain() as stage:
            return _train(stage, artifact, stage.context_tokens, None, execution)
        case Evaluate() as stage:
            return _evaluate(artifact, stage, execution.slots_per_gpu)
    return Cost()


def _size(chunks: Artifact) -> tuple[int | None, int]:
    """Sequences of a chunk artifact, None where their number is not known before it is there; tokens of each."""
    if isinstance(chunks.stage, Select):
        candidates, tokens = _size(chunks.inputs["chunks"])
        return candidates and max(1, round(chunks.stage.share * candidates)), tokens
    assert isinstance(chunks.stage, Chunk)
    tokens = chunks.stage.chunking.long_tokens
    known = _TABLES["sequences"].get(getattr(chunks.stage.corpus, "repo_id", ""), {})
    return chunks.stage.chunking.sequences or (known["count"] if known.get("tokens") == tokens else None), tokens


def _train(stage: Train | Pretrain, model: Artifact, tokens: int, scorer: Scorer | None, execution: Execution) -> Cost:
    config, training = config_of(model), stage.training
    size, sequences = parameters(config), training.steps * training.sequences_per_step
    unknown = _untimed(model, _MFU["least"].get(getattr(config, "model_type", ""), LEAST_PARAMETERS))
    if not unknown and training.precision != "bf16":
        unknown = {"GPU-hours of training in fp32": 1}
    return Cost(
        None if unknown else training_hours(config, tokens, sequences, scorer),
        disk_bytes=float(_BYTES["weight"][training.precision] * size),
        passing_bytes=float(_BYTES["checkpoints"] * _BYTES["checkpoint"][str(execution.deepspeed_stage)] * size),
        memory_bytes=training_memory(config, size, tokens, execution),
        unknown=unknown,
    )


def _evaluate(artifact: Artifact, stage: Evaluate, slots: int) -> Cost:
    """As the timed model took, by parameters."""
    benchmark, model, measured = benchmark_of(stage.unit), artifact.inputs["checkpoint"], _TABLES["evaluation"]
    unknown, small = _untimed(model), measured["timed_small"].get(benchmark.name)
    if benchmark.name not in measured["timed"]:
        unknown = {f"GPU-hours of evaluation by {benchmark.name}, which was not timed": 1}
    elif small and parameters(config_of(model)) >= measured["least_parameters"]:
        unknown = {}
    if unknown:
        return Cost(unknown=unknown)
    samples = _samples(stage.placed(artifact.sources))
    if samples is None:
        return Cost(unknown={"GPU-hours of evaluation on a corpus whose documents are not counted yet": 1})
    alone, of_eight, least_count = small or (0.0, 0.0, 1)
    busy = (of_eight - alone) / 7  # the GPU; what it waits for, slots share
    least = (busy + (alone - busy) / slots) / least_count
    return Cost(
        max(seconds_timed(artifact) * parameters(config_of(model)) / measured["parameters"], samples * least) / 3600
    )


def _samples(stage: Evaluate) -> float | None:
    """That a unit asks for; None where its data was not counted."""
    benchmark = benchmark_of(stage.unit)
    hub, every = benchmark.hub(stage.evaluation), _TABLES["evaluation"]["samples"].get(benchmark.name)
    counted: float | None = _TABLES["documents"].get(hub.repo_id) if hub else None
    return benchmark.samples_asked(stage.evaluation) or (every / len(benchmark.tasks) if every else counted)


def seconds_timed(artifact: Artifact) -> float:
    """Samples of a unit times the seconds of one by the timed model and, where these grow with the context, by tokens.

    Infinite where the benchmark was not timed, or its samples are not counted yet.
    """
    stage, measured = artifact.stage, _TABLES["evaluation"]
    assert isinstance(stage, Evaluate)
    benchmark = benchmark_of(stage.unit)
    samples = _samples(stage.placed(artifact.sources))
    timed = measured["timed"].get(benchmark.name)
    if timed is None or samples is None:
        return float("inf")
    tokens = stage.unit.length_tokens or (stage.context_tokens if benchmark.prompted else measured["tokens"])
    seconds, count = timed
    return float(samples * seconds / count * tokens / measured["tokens"])


def _untimed(model: Artifact, least: float = LEAST_PARAMETERS) -> dict[str, int]:
    """Why a model's GPU-hours have no basis, if they have none."""
    if (size := parameters(config_of(model))) >= least:
        return {}
    name = model.stage.repo_id if isinstance(model.stage, HubModel) else "models"
    return {"GPU-hours of models smaller than any timed" if size else f"GPU-hours of {name} of unknown size": 1}


def training_hours(config: Any, tokens: int, sequences: int, scorer: Scorer | None) -> float:
    flops = train_flops(config, tokens) or 0.0
    flops += _windows_flops(config, tokens, scorer) if scorer and scorer.kind == "unfrozen" else 0.0
    return flops * sequences / (PEAK_FLOPS[GPU] * _MFU["training"][config.model_type]) / 3600


def scoring_hours(config: Any, tokens: int, sequences: int, scorer: Scorer) -> float:
    flops = _windows_flops(config, tokens, scorer) * sequences
    return flops / (PEAK_FLOPS[GPU] * _MFU["scoring"][config.model_type]) / 3600


def _windows_flops(config: Any, tokens: int, scorer: Scorer) -> float:
    """Of one sequence; the head reads the scored positions. An unfrozen scorer takes the first window from the long pass."""
    first = scorer.kind != "unfrozen"
    window = forward_flops(config, scorer.short_tokens)
    positions = forward_flops(config, tokens - 1 if first else tokens - scorer.short_tokens)
    if window is None or positions is None:
        return 0.0
    later = -(-(tokens - scorer.short_tokens) // scorer.stride_tokens)
    return (later + first) * window.layers + positions.head


def training_memory(config: Any, size: int, tokens: int, execution: Execution) -> float | None:
    """Peak bytes on each GPU while a model of `size` parameters trains on sequences of `tokens`; None where not measured.

    ZeRO-3 with recomputation alone: parameters, gradients, optimizer, activations kept and the working set of a layer.
    """
    if execution.deepspeed_stage != 3 or execution.checkpointing == "none" or size < LEAST_PARAMETERS:
        return None
    here = tokens * execution.micro_batch_sequences / execution.sequence_parallel
    width, (query, key) = config.hidden_size, attention_widths(config)
    kept = {
        "full": 0,
        "keep_attention": query,
        "keep_projections": query + (query + 2 * key + width),
    }[execution.checkpointing] + (0 if execution.offload_activations else width)
    activations = 2 * kept * config.num_hidden_layers * here
    working_set = _BYTES["working"] * (width + config.intermediate_size) * here
    states = _BYTES["state"] * size / execution.processes
    return float(states + activations + working_set + _BYTES["fixed_gib"] * 2**30)


# --- the configuration of a model, before any of it is fetched or made ---


def config_of(artifact: Artifact) -> Any | None:
    """Fields of the model's transformers configuration; None where it is not known before the model is there."""
    match artifact.stage:
        case HubModel() as stage:
            if stage.repo_id in _TABLES["published"]:
                return published_config(stage.repo_id)
            from huggingface_hub import try_to_load_from_cache

            cached = try_to_load_from_cache(stage.repo_id, "config.json", revision=stage.revision)
            return _of_file(Path(cached)) if isinstance(cached, str) else None
        case LocalModel():
            return _of_file(Path(artifact.sources["sha256"] or "") / "config.json")
        case Extend() | Train():
            return config_of(artifact.inputs["model"])
        case Initialize() as stage:
            return _of_values(stage.config)
        case Pretrain() as stage:
            vocabulary = _vocabulary(artifact.inputs["tokenizer"].sources["sha256"])
            return _of_values(architecture_values(stage, vocabulary))
    return None


def parameters(config: Any | None) -> int:
    """Parameters of the model's matrices: embeddings, layers, head; 0 where they, or its family, are not known here."""
    if config is None or config.model_type not in MLP_MATRICES:
        return 0
    width, (query_width, key_width) = config.hidden_size, attention_widths(config)
    layer = 2 * width * (query_width + key_width) + MLP_MATRICES[config.model_type] * width * config.intermediate_size
    tables = 1 if config.tie_word_embeddings else 2
    return int(config.num_hidden_layers * layer + tables * config.vocab_size * width)


@cache
def published_config(repo_id: str) -> Any:
    """Fields of the configuration of one of the paper's models; KeyError for others."""
    changes = _TABLES["published"][repo_id]
    return _of_values({**json.loads(shipped_config(changes["shipped"]).read_text("utf-8")), **changes})


@cache
def _of_file(path: Path) -> Any | None:
    values = read_json(path)
    return _of_values(values) if isinstance(values, dict) else None


def _of_values(values: dict[str, Any]) -> Any | None:
    """None where a field that counts is not there; a configuration leaves out what is the family's default."""
    heads = values.get("num_attention_heads")
    filled = {"num_key_value_heads": heads, "tie_word_embeddings": False, **values}
    return SimpleNamespace(**filled) if all(map(filled.get, _TABLES["config"]["fields"])) else None


@cache
def _vocabulary(tokenizer_dir: str | None) -> int | None:
    try:
        content = json.loads((Path(tokenizer_dir or "") / "tokenizer.json").read_text(encoding="utf-8"))
        ids = [*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return int(max(ids)) + 1
