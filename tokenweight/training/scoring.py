"""Frozen scoring (Section 3.1, choice of base model): the short-context NLL of every sequence that training reads."""

from __future__ import annotations

import math
import os
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokenweight.context.extend import load_config
from tokenweight.errors import StageError, UserError
from tokenweight.optional import by_parity
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_launch
from tokenweight.recipes.schema import Execution
from tokenweight.training.activations import attention_kernels
from tokenweight.training.fused import fused_elementwise
from tokenweight.training.launch import launch
from tokenweight.training.models import (
    bos_token_id,
    head_rounding,
    load_model,
    load_tokenizer,
    resolve_device,
    scorer_config,
    vocabulary_sha256,
)
from tokenweight.training.score_store import ShardHeader, digest_rows, open_shard, shard_path, write_shard
from tokenweight.training.sequences import open_tokens
from tokenweight.training.stages import Score
from tokenweight.weighting.windows import WindowPlan, plan_windows, score_windows

SHARD_SEQUENCES = 32
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def score(stage: Score, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Score the first sequences of a chunk artifact with a frozen model on short windows.

    The model runs with its own, un-extended configuration. Writes shards of float32 NLL with headers
    (score_store) and skips those that an earlier attempt left complete. `parity` decides about its RoPE and the
    rounding of its logits. Returns counts and seconds. Raises UserError for bad input before the model is loaded, a
    scorer of another vocabulary than the tokenizer's included.
    """
    started = time.perf_counter()
    check_launch(execution)
    model_dir, chunk_dir = inputs["model"].path, inputs["chunks"].path
    tokens = open_tokens(chunk_dir)
    if len(tokens) < stage.sequences:
        raise UserError(
            f"{chunk_dir}: {len(tokens)} sequences, training reads {stage.sequences}; "
            "give a larger corpus or fewer steps"
        )
    context_tokens = load_config(model_dir).max_position_embeddings
    if stage.short_tokens > context_tokens:
        raise UserError(
            f"scorer.short_tokens: {stage.short_tokens} exceeds the scorer's context ({context_tokens}); lower it"
        )
    try:
        plan = plan_windows(tokens.shape[1], stage.short_tokens, stage.stride_tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error
    vocabulary = vocabulary_sha256(load_tokenizer(model_dir))
    if vocabulary_sha256(load_tokenizer(inputs["tokenizer"].path)) != vocabulary:
        raise UserError(
            f"scorer.model: {model_dir.name} has another vocabulary than the model; take one that shares it"
        )
    headers = [
        ShardHeader(
            first_sequence=first,
            last_sequence=(last := min(first + SHARD_SEQUENCES, stage.sequences) - 1),
            token_ids_sha256=digest_rows(tokens, first, last),
            vocabulary_sha256=vocabulary,
            scorer_fingerprint=inputs["model"].fingerprint,
            dtype=stage.precision,
            windows=plan,
        )
        for first in range(0, stage.sequences, SHARD_SEQUENCES)
    ]
    out_dir.mkdir(parents=True, exist_ok=True)
    score_own_shards = partial(_score_own_shards, stage, model_dir, chunk_dir, out_dir, headers, execution)
    if execution.launcher == "inline":
        score_own_shards(progress=progress)
    else:
        launch(score_own_shards, out_dir, execution, progress)
    return {
        "sequences": stage.sequences,
        "shards": len(headers),
        "windows": len(plan.starts),
        "scored_tokens": stage.sequences * plan.predictions,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _score_own_shards(
    stage: Score,
    model_dir: Path,
    chunk_dir: Path,
    out_dir: Path,
    headers: list[ShardHeader],
    execution: Execution,
    progress: Progress,
) -> None:
    """This process's shards (every world-size-th); needs no word with the others."""
    names = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    rank, world, local = (int(os.environ.get(name, default)) for name, default in names.items())
    paths = {shard_path(out_dir, index): header for index, header in enumerate(headers) if index % world == rank}
    missing = {path: header for path, header in paths.items() if not _is_complete(path, header)}
    if not missing:
        progress(stage.sequences, stage.sequences, "sequences")
        return
    tokens, plan = open_tokens(chunk_dir), headers[0].windows
    device = resolve_device(execution.device, local)
    config = by_parity(stage.parity, scorer_config)(model_dir, stage.short_tokens)
    rounding = by_parity(stage.parity, head_rounding)(frozen=True)
    model = load_model(model_dir, DTYPES[stage.precision], config=config, rounding=rounding).to(device).eval()
    bos = bos_token_id(load_tokenizer(model_dir), model.config)
    done = stage.sequences - world * sum(header.sequences for header in missing.values())
    with attention_kernels(), fused_elementwise(model) if execution.fused else nullcontext():
        for path, header in missing.items():
            parts = []
            end = header.last_sequence + 1
            for first in range(header.first_sequence, end, execution.micro_batch_sequences):
                ids = np.asarray(tokens[first : min(first + execution.micro_batch_sequences, end)], dtype=np.int64)
                if ids.max() >= model.config.vocab_size:
                    raise UserError(
                        f"scorer.model: knows {model.config.vocab_size} tokens, the corpus has token {ids.max()}"
                    )
                nll = score_windows(
                    model,
                    torch.from_numpy(ids).to(device),
                    plan,
                    bos_token_id=bos,
                    windows_per_batch=windows_per_batch(plan, len(ids)),
                )
                parts.append(nll.cpu().numpy())
                if not math.isfinite(float(parts[-1].sum(dtype=np.float64))):
                    raise StageError(f"the scorer's NLL of sequence {first} or a neighbour is not finite")
                done += world * len(ids)
                progress(min(max(done, 0), stage.sequences), stage.sequences, "sequences")
            write_shard(path, np.concatenate(parts), header)


def _is_complete(path: Path, header: ShardHeader) -> bool:
    """Whether an earlier attempt has left exactly this shard."""
    try:
        return open_shard(path)[0] == header
    except StageError:
        return False


def windows_per_batch(plan: WindowPlan, sequences: int) -> int:
    """As many windows as hold the tokens of `sequences` long ones: the memory of one training forward pass."""
    return max(1, sequences * plan.long_tokens // plan.short_tokens)
