"""Frozen scoring (Section 3.1, choice of base model): the short-context NLL of every sequence that training reads."""

from __future__ import annotations

import math
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from tokenweight.context.extend import load_config
from tokenweight.errors import StageError, UserError
from tokenweight.optional import by_parity
from tokenweight.progress import Progress
from tokenweight.recipes.execution import check_launch
from tokenweight.recipes.schema import Execution, Parity, Scorer
from tokenweight.training.activations import attention_kernels
from tokenweight.training.fused import fused_elementwise
from tokenweight.training.models import head_rounding, load_model, resolve_device, scorer_config
from tokenweight.training.score_store import (
    NllRows,
    ShardHeader,
    digest_rows,
    shard_is_complete,
    shard_path,
    window_fields,
    write_shard,
)
from tokenweight.training.sequences import TokenRows, open_tokens
from tokenweight.training.vocabulary import bos_token_id, load_tokenizer, vocabulary_sha256
from tokenweight.weighting.windows import WindowPlan, plan_windows, score_windows

SHARD_SEQUENCES = 32
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def score(
    model_dir: Path,
    chunk_dir: Path,
    out_dir: Path,
    *,
    scorer: Scorer,
    sequences: int,
    scorer_fingerprint: str,
    execution: Execution,
    progress: Progress,
    precision: Literal["fp32", "bf16"] = "fp32",
    tokenizer_dir: Path | None = None,
    parity: Parity = "paper",
) -> dict[str, Any]:
    """Score sequences 0..sequences-1 of a chunk artifact with a frozen model on short windows.

    The model runs with its own, un-extended configuration. Writes shards of float32 NLL with headers
    (score_store) and skips those that an earlier attempt left complete. With `tokenizer_dir`, the directory of the
    model to be trained, a scorer of another vocabulary is refused. `parity` decides about its RoPE and the
    rounding of its logits. Returns counts and seconds.
    Raises UserError for bad input before the model is loaded.
    """
    started = time.perf_counter()
    if "RANK" not in os.environ:
        check_launch(execution)
    tokens = open_tokens(chunk_dir)
    plan = _checked_plan(model_dir, tokens, chunk_dir, scorer, sequences)
    tokenizer = load_tokenizer(model_dir)
    vocabulary = vocabulary_sha256(tokenizer)
    if tokenizer_dir is not None and vocabulary_sha256(load_tokenizer(tokenizer_dir)) != vocabulary:
        raise UserError(
            f"scorer.model: {model_dir.name} has another vocabulary than the model; take one that shares it"
        )
    if execution.launcher != "inline" and "RANK" not in os.environ:
        from tokenweight.training.launch import launch

        launch(
            "score",
            {
                "model_dir": str(model_dir),
                "chunk_dir": str(chunk_dir),
                "scorer": scorer.model_dump(mode="json"),
                "sequences": sequences,
                "scorer_fingerprint": scorer_fingerprint,
                "precision": precision,
                "parity": parity,
            },
            out_dir,
            execution,
            progress,
        )
    else:
        headers = _headers(tokens, plan, sequences, scorer_fingerprint, vocabulary, precision)
        _score_shards(model_dir, tokens, out_dir, headers, plan, tokenizer, execution, progress, parity)
    return {
        "sequences": sequences,
        "shards": -(-sequences // SHARD_SEQUENCES),
        "windows": len(plan.starts),
        "scored_tokens": sequences * plan.predictions,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _checked_plan(model_dir: Path, tokens: TokenRows, chunk_dir: Path, scorer: Scorer, sequences: int) -> WindowPlan:
    if len(tokens) < sequences:
        raise UserError(
            f"{chunk_dir}: {len(tokens)} sequences, training reads {sequences}; give a larger corpus or fewer steps"
        )
    context_tokens = load_config(model_dir).max_position_embeddings
    if scorer.short_tokens > context_tokens:
        raise UserError(
            f"scorer.short_tokens: {scorer.short_tokens} exceeds the scorer's context ({context_tokens}); lower it"
        )
    try:
        return plan_windows(tokens.shape[1], scorer.short_tokens, scorer.stride_tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error


def _headers(
    tokens: TokenRows, plan: WindowPlan, sequences: int, fingerprint: str, vocabulary: str, precision: str
) -> list[ShardHeader]:
    """What each shard must say of itself."""
    firsts = range(0, sequences, SHARD_SEQUENCES)
    lasts = [min(first + SHARD_SEQUENCES, sequences) - 1 for first in firsts]
    return [
        ShardHeader(
            first_sequence=first,
            last_sequence=last,
            token_ids_sha256=digest_rows(tokens, first, last),
            vocabulary_sha256=vocabulary,
            scorer_fingerprint=fingerprint,
            dtype=precision,
            **window_fields(plan),
        )
        for first, last in zip(firsts, lasts, strict=True)
    ]


def _score_shards(
    model_dir: Path,
    tokens: TokenRows,
    out_dir: Path,
    headers: list[ShardHeader],
    plan: WindowPlan,
    tokenizer: Any,
    execution: Execution,
    progress: Progress,
    parity: Parity,
) -> None:
    """This process's shards (every world-size-th); needs no word with the others."""
    rank, world, local = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    out_dir.mkdir(parents=True, exist_ok=True)
    total = headers[-1].last_sequence + 1
    missing = [
        (index, header)
        for index, header in enumerate(headers)
        if index % world == rank and not shard_is_complete(shard_path(out_dir, index), header)
    ]
    if not missing:
        progress(total, total, "sequences")
        return
    device = resolve_device(execution.device, local)
    config = by_parity(parity, scorer_config)(model_dir, plan.short_tokens)
    rounding = by_parity(parity, head_rounding)(frozen=True)
    model = load_model(model_dir, DTYPES[headers[0].dtype], config=config, rounding=rounding).to(device).eval()
    bos = bos_token_id(tokenizer, model.config)
    done = total - world * sum(header.sequences for _, header in missing)
    with attention_kernels(), fused_elementwise(model) if execution.fused else nullcontext():
        for index, header in missing:
            nll = np.empty((header.sequences, plan.predictions), dtype=np.float32)
            for first in range(0, header.sequences, execution.micro_batch_sequences):
                rows = slice(first, min(first + execution.micro_batch_sequences, header.sequences))
                nll[rows] = _score_rows(model, tokens, header.first_sequence, rows, plan, bos, device)
                done += world * (rows.stop - rows.start)
                progress(min(max(done, 0), total), total, "sequences")
            write_shard(shard_path(out_dir, index), nll, header)


def _score_rows(
    model: Any, tokens: TokenRows, offset: int, rows: slice, plan: WindowPlan, bos: int | None, device: torch.device
) -> NllRows:
    ids = torch.from_numpy(np.asarray(tokens[offset + rows.start : offset + rows.stop], dtype=np.int64)).to(device)
    if int(ids.max()) >= model.config.vocab_size:
        raise UserError(f"scorer.model: knows {model.config.vocab_size} tokens, the corpus has token {int(ids.max())}")
    per_batch = windows_per_batch(plan, len(ids))
    nll: NllRows = score_windows(model, ids, plan, bos_token_id=bos, windows_per_batch=per_batch).cpu().numpy()
    if not math.isfinite(float(nll.sum(dtype=np.float64))):
        raise StageError(f"the scorer's NLL of sequence {offset + rows.start} or a neighbour is not finite")
    return nll


def windows_per_batch(plan: WindowPlan, sequences: int) -> int:
    """As many windows as hold the tokens of `sequences` long ones: the memory of one training forward pass."""
    return max(1, sequences * plan.long_tokens // plan.short_tokens)
