"""The numbers behind Table 1 for one text: long NLL, short NLL and weight of every token (Section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokenweight.context.extend import load_config
from tokenweight.corpus.token_texts import Tokens, first_tokens_with_text
from tokenweight.errors import StageError, UserError
from tokenweight.inspection.request import (
    Device,
    Request,
    check_directory,
    default_stride,
    default_windows,
    read_text,
)
from tokenweight.training.models import load_model, resolve_device
from tokenweight.training.scoring import windows_per_batch
from tokenweight.training.vocabulary import bos_token_id, load_tokenizer, vocabulary_sha256
from tokenweight.weighting.head import model_nll, model_nll_and_entropy
from tokenweight.weighting.weights import token_weights
from tokenweight.weighting.windows import WindowPlan, plan_windows, score_windows

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Prepared:
    """Input that has been checked: the tokens to score, their windows, and how to compute."""

    request: Request
    tokens: Tokens
    plan: WindowPlan
    bos_token_id: int | None
    device: torch.device
    precision: torch.dtype


@dataclass(frozen=True)
class Inspection(Prepared):
    """A text's tokens and their numbers. Arrays have shape [M], M = N - 1; column j is about token j + 1.

    long_nll, short_nll in nats; weights; short_context_tokens: how many tokens the short pass had before the token
    (the long pass had j + 1).
    """

    long_nll: FloatArray
    short_nll: FloatArray
    weights: FloatArray
    short_context_tokens: NDArray[np.int64]


def prepare(request: Request) -> Prepared:
    """Read and check everything that can be wrong with the input; loads no weights. UserError in one line."""
    text = read_text(request.text)
    check_directory("CHECKPOINT", request.checkpoint)
    if request.scorer:
        check_directory("--scorer", request.scorer)
    config = load_config(request.checkpoint)
    scorer_config = load_config(request.scorer) if request.scorer else None
    tokenizer = load_tokenizer(request.checkpoint)
    if request.scorer and vocabulary_sha256(load_tokenizer(request.scorer)) != vocabulary_sha256(tokenizer):
        raise UserError(f"--scorer {request.scorer}: has another vocabulary than CHECKPOINT; take one that shares it")
    tokens = _tokens(request, tokenizer, text, config.max_position_embeddings)
    for name, model_config in (("CHECKPOINT", config), ("--scorer", scorer_config or config)):
        if max(tokens.ids) >= model_config.vocab_size:
            raise UserError(
                f"{name}: the model knows {model_config.vocab_size} tokens, its tokenizer gives token "
                f"{max(tokens.ids)}; take the tokenizer that belongs to it"
            )
    device = _device(request.device)
    return Prepared(
        request=request,
        tokens=tokens,
        plan=_plan(request, len(tokens.ids), scorer_config),
        bos_token_id=bos_token_id(tokenizer, scorer_config or config),
        device=device,
        precision=_precision(config, device),
    )


def score(prepared: Prepared) -> Inspection:
    """Score the tokens with long and short context, and weight them; UserError where a model cannot be loaded."""
    request, plan = prepared.request, prepared.plan
    token_ids = torch.tensor([prepared.tokens.ids], device=prepared.device)
    # 1. Long context.
    model = _load(request.checkpoint, prepared)
    entropy = None
    with torch.no_grad():
        if request.weighting.score == "mile":
            long_nll, entropy = model_nll_and_entropy(model, token_ids)
        else:
            long_nll = model_nll(model, token_ids)
    # 2. Short context: the scorer's, or the model's own.
    if request.scorer:
        del model
        model = _load(request.scorer, prepared)
    own_first_window = not request.scorer or request.weighting.score == "long_ce"  # as in training
    short_nll = score_windows(
        model,
        token_ids,
        plan,
        bos_token_id=prepared.bos_token_id,
        windows_per_batch=windows_per_batch(plan, 1),
        first_window=not own_first_window,
    )
    if own_first_window:
        short_nll = plan.with_own_context(short_nll, long_nll)
    # 3. Weights.
    try:
        weights = token_weights(
            long_nll, short_nll, request.weighting, sequence_ids=[0], seed=request.seed, long_entropy=entropy
        )
    except FloatingPointError as error:
        raise StageError(f"{error} for this text; the checkpoint may be damaged") from None
    return Inspection(
        **vars(prepared),
        long_nll=long_nll[0].cpu().numpy(),
        short_nll=short_nll[0].cpu().numpy(),
        weights=weights[0].cpu().numpy(),
        short_context_tokens=short_context_tokens(plan),
    )


def short_context_tokens(plan: WindowPlan) -> NDArray[np.int64]:
    """How many tokens stand before each prediction in the window that scores it: int64 [M]."""
    counts = np.arange(1, plan.predictions + 1)
    for start, (first, stop) in zip(plan.starts, plan.scored_ranges, strict=True):
        counts[first:stop] -= start
    return counts


def _tokens(request: Request, tokenizer: Any, text: str, context_tokens: int) -> Tokens:
    wanted = request.long_tokens or context_tokens
    if wanted > context_tokens:
        raise UserError(f"--long-tokens {wanted}: exceeds the checkpoint's context ({context_tokens}); lower it")
    tokens = first_tokens_with_text(tokenizer, text, wanted)
    if request.long_tokens and len(tokens.ids) < request.long_tokens:
        raise UserError(
            f"--long-tokens {wanted}: {request.text} has {len(tokens.ids)} tokens; lower it or leave it out"
        )
    if len(tokens.ids) < 2:
        raise UserError(f"TEXT {request.text}: has fewer than 2 tokens, so nothing to predict; give a longer text")
    return tokens


def _plan(request: Request, long_tokens: int, scorer_config: Any) -> WindowPlan:
    scorer_context = scorer_config.max_position_embeddings if scorer_config else long_tokens
    short_tokens, _ = default_windows(long_tokens, scorer_context)
    short_tokens = request.short_tokens or short_tokens
    if scorer_config and short_tokens > scorer_context:
        raise UserError(f"--short-tokens {short_tokens}: exceeds the scorer's context ({scorer_context}); lower it")
    stride_tokens = request.stride_tokens or default_stride(short_tokens)
    try:
        return plan_windows(long_tokens, short_tokens, stride_tokens)
    except ValueError as error:
        raise UserError(f"--short-tokens, --stride-tokens: {error}; change one of them") from None


def _device(device: Device) -> torch.device:
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU; run where one is, or leave --device out")
    return resolve_device(device)


def _precision(config: Any, device: torch.device) -> torch.dtype:
    """bf16 for a bf16 checkpoint on a GPU, else fp32; both passes the same, their NLL in fp32 either way."""
    return torch.bfloat16 if device.type == "cuda" and config.dtype is torch.bfloat16 else torch.float32


def _load(model_dir: Path, prepared: Prepared) -> Any:
    try:
        return load_model(model_dir, prepared.precision).to(prepared.device).eval()
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{model_dir}: the model cannot be loaded ({reason}); give a whole checkpoint") from error
