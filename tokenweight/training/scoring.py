"""Frozen scoring (Section 3.1, choice of base model): the short-context NLL of every sequence that training reads."""

import math
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tokenweight.context.extend import check_sight, load_config
from tokenweight.errors import StageError, UserError
from tokenweight.optional import by_parity
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_launch
from tokenweight.recipes.schema import Execution
from tokenweight.training import models
from tokenweight.training.kernels import fast_kernels
from tokenweight.training.launch import Stopped, asked_to_stop, launch
from tokenweight.training.sequences import (
    ENTROPY,
    NLL,
    open_tokens,
    scorer_windows,
    shard_path,
    write_shard,
)
from tokenweight.training.stages import Score, ScoreWithEntropy
from tokenweight.weighting.head import model_nll
from tokenweight.weighting.windows import WindowPlan, score_windows

SHARD_SEQUENCES = 32
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def score(stage: Score, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Score the first sequences of a chunk artifact with a frozen model, un-extended, on short windows.

    Writes shards of float32 NLL (training.sequences) and skips those that an earlier attempt left complete. `parity`
    decides about the model's RoPE and the rounding of its logits. Raises UserError for bad input before the model is loaded.
    """
    started = time.perf_counter()
    check_launch(execution)
    model_dir, tokens = inputs["model"], open_tokens(inputs["chunks"], stage.sequences or 0)
    sequences = stage.sequences or len(tokens)
    config = load_config(model_dir)
    context_tokens = config.max_position_embeddings
    check_sight(config, stage.short_tokens, "scorer.short_tokens (score: --long-tokens)", model_dir.name)
    if stage.short_tokens > context_tokens:
        raise UserError(
            f"scorer.short_tokens: {stage.short_tokens} exceeds the scorer's context ({context_tokens}); lower it "
            "(of planted, evaluation.planted.short_tokens)"
        )
    plan = scorer_windows(tokens.shape[1], stage)
    if models.load_tokenizer(model_dir).get_vocab() != models.load_tokenizer(inputs["tokenizer"]).get_vocab():
        raise UserError(f"scorer.model: {model_dir.name} has another vocabulary than the model; use one with the same")
    starts = range(0, sequences, SHARD_SEQUENCES)
    shards = [range(first, min(first + SHARD_SEQUENCES, sequences)) for first in starts]
    out_dir.mkdir(parents=True, exist_ok=True)
    launch(partial(_score_own_shards, stage, dict(inputs), out_dir, shards, execution), out_dir, execution, progress)
    return {
        "sequences": sequences,
        "shards": len(shards),
        "windows": len(plan.starts),
        "scored_tokens": sequences * plan.predictions,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _score_own_shards(
    stage: Score, inputs: Inputs, out_dir: Path, shards: list[range], execution: Execution, progress: Progress
) -> None:
    """This process's shards (every world-size-th); needs no word with the others."""
    model_dir, tokens, sequences = inputs["model"], open_tokens(inputs["chunks"]), shards[-1].stop
    plan = scorer_windows(tokens.shape[1], stage)
    names = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    rank, world, local = (int(os.environ.get(name, default)) for name, default in names.items())
    own = {shard_path(out_dir, index): rows for index, rows in enumerate(shards) if index % world == rank}
    missing = {path: rows for path, rows in own.items() if not _is_complete(path, [len(rows), plan.predictions])}
    if not missing:
        progress(sequences, sequences, "sequences")
        return
    device = models.resolve_device(execution.device, local)
    config = by_parity(stage.parity, models.scorer_config)(model_dir, stage.short_tokens)
    rounding = by_parity(stage.parity, models.head_rounding)(frozen=True)
    model = models.load_model(model_dir, DTYPES[stage.precision], config=config, rounding=rounding).to(device).eval()
    bos = models.bos_token_id(models.load_tokenizer(model_dir), model.config)
    done = sequences - world * sum(map(len, missing.values()))
    with fast_kernels(model, execution):
        for path, rows in missing.items():
            parts: dict[str, list[Any]] = {}
            for first in rows[:: execution.micro_batch_sequences]:
                ids = np.asarray(tokens[first : min(first + execution.micro_batch_sequences, rows.stop)], np.int64)
                if ids.max() >= model.config.vocab_size:
                    raise UserError(
                        f"scorer.model: knows {model.config.vocab_size} tokens, the corpus has token {ids.max()}; use another"
                    )
                for name, scores in _scores(stage, model, torch.from_numpy(ids).to(device), plan, bos).items():
                    parts.setdefault(name, []).append(scores.cpu().numpy())
                if not math.isfinite(float(parts[NLL][-1].sum(dtype=np.float64))):
                    raise StageError(f"the scorer's NLL of sequence {first} or a neighbour is not finite")
                done += world * len(ids)
                progress(min(max(done, 0), sequences), sequences, "sequences")
            write_shard(path, **{name: np.concatenate(of_batches) for name, of_batches in parts.items()})
            if done < sequences and asked_to_stop(out_dir):
                raise Stopped("scoring stopped on request; run again to resume")


@torch.no_grad()
def _scores(stage: Score, model: Any, ids: Tensor, plan: WindowPlan, bos: int | None) -> dict[str, Tensor]:
    """What a shard has of some sequences, each fp32 [B, M]."""
    if not isinstance(stage, ScoreWithEntropy):
        return {NLL: score_windows(model, ids, plan, bos_token_id=bos)}
    entropy = torch.empty(len(ids), plan.predictions, device=ids.device)
    return {NLL: model_nll(model, ids, entropy=entropy), ENTROPY: entropy}


def _is_complete(path: Path, shape: list[int]) -> bool:
    """Whether an earlier attempt has left this shard; one that is damaged would get a digest, and pass for good."""
    try:
        return bool(safe_open(path, framework="np").get_slice(NLL).get_shape() == shape)
    except (OSError, SafetensorError):
        return False
