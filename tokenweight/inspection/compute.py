"""The numbers behind Table 1 for one text: long NLL, short NLL and weight of every token (Section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokenweight.context.extend import load_config
from tokenweight.corpus.token_texts import Tokens, first_tokens_with_text
from tokenweight.errors import StageError, UserError
from tokenweight.inspection.request import Options, chosen_span, read_text
from tokenweight.training.models import bos_token_id, load_model, load_tokenizer, resolve_device, vocabulary_sha256
from tokenweight.training.scoring import windows_per_batch
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.windows import WindowPlan, plan_windows, score_windows

FloatArray = NDArray[np.float32]


@dataclass
class Inspection:
    """A checked text as tokens with their windows, and the numbers of each token once it is scored.

    Arrays have shape [M], M = N - 1; column j is about token j + 1. long_nll, short_nll in nats; weights.
    """

    checkpoint: Path
    text: Path
    options: Options
    tokens: Tokens
    span: range | None  # of the LaTeX table; None: around the largest weight
    plan: WindowPlan
    bos_token_id: int | None
    device: torch.device
    precision: torch.dtype  # of both passes; their NLL is in fp32 either way
    long_nll: FloatArray = field(init=False)
    short_nll: FloatArray = field(init=False)
    weights: FloatArray = field(init=False)

    @property
    def short_context_tokens(self) -> NDArray[np.int64]:
        """How many tokens the short pass had before the token (the long pass had j + 1): int64 [M]."""
        counts = np.arange(1, self.plan.predictions + 1)
        for start, (first, stop) in zip(self.plan.starts, self.plan.scored_ranges, strict=True):
            counts[first:stop] -= start
        return counts


def prepare(checkpoint: Path, text: Path, options: Options) -> Inspection:
    """Read and check everything that can be wrong with the input; loads no weights. UserError in one line."""
    scorer = options.scorer
    _ = options.weighting  # raises what is wrong with it
    content = read_text(text)
    config = load_config(checkpoint)
    scorer_config = load_config(scorer) if scorer else None
    tokenizer = load_tokenizer(checkpoint)
    if scorer and vocabulary_sha256(load_tokenizer(scorer)) != vocabulary_sha256(tokenizer):
        raise UserError(f"--scorer {scorer}: has another vocabulary than CHECKPOINT; take one that shares it")
    tokens = _tokens(text, content, tokenizer, options.long_tokens, config.max_position_embeddings)
    for name, model_config in (("CHECKPOINT", config), ("--scorer", scorer_config or config)):
        if max(tokens.ids) >= model_config.vocab_size:
            raise UserError(
                f"{name}: the model knows {model_config.vocab_size} tokens, its tokenizer gives token "
                f"{max(tokens.ids)}; take the tokenizer that belongs to it"
            )
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU; run where one is, or leave --device out")
    device = resolve_device(options.device)
    bf16 = device.type == "cuda" and config.dtype is torch.bfloat16
    return Inspection(
        checkpoint=checkpoint,
        text=text,
        options=options,
        tokens=tokens,
        span=chosen_span(tokens, options),
        plan=_plan(options, len(tokens.ids), scorer_config),
        bos_token_id=bos_token_id(tokenizer, scorer_config or config),
        device=device,
        precision=torch.bfloat16 if bf16 else torch.float32,
    )


def score(inspection: Inspection) -> Inspection:
    """Score the tokens as a training step does; UserError where a model cannot be loaded."""
    options, weighting, plan = inspection.options, inspection.options.weighting, inspection.plan
    token_ids = torch.tensor([inspection.tokens.ids], device=inspection.device)
    # 1. Short context: the scorer's, or the model's own.
    model = _load(options.scorer or inspection.checkpoint, inspection)
    own_first_window = not options.scorer or weighting.score == "long_ce"
    short_nll = score_windows(
        model,
        token_ids,
        plan,
        bos_token_id=inspection.bos_token_id,
        windows_per_batch=windows_per_batch(plan, 1),
        first_window=not own_first_window,
    )
    # 2. Long context, and weights.
    if options.scorer:
        del model
        model = _load(inspection.checkpoint, inspection)
    try:
        with torch.no_grad():
            step = weighted_step(
                model,
                token_ids,
                weighting,
                sequence_ids=[0],
                seed=options.seed,
                short_nll=short_nll,
                own_first_window=plan if own_first_window else None,
            )
    except FloatingPointError as error:
        raise StageError(f"{error} for this text; the checkpoint may be damaged") from None
    if own_first_window:
        short_nll = plan.with_own_context(short_nll, step.nll)
    inspection.long_nll, inspection.short_nll, inspection.weights = (
        values[0].cpu().numpy() for values in (step.nll, short_nll, step.weights)
    )
    return inspection


def _tokens(path: Path, text: str, tokenizer: Any, long_tokens: int | None, context_tokens: int) -> Tokens:
    wanted = long_tokens or context_tokens
    if wanted > context_tokens:
        raise UserError(f"--long-tokens {wanted}: exceeds the checkpoint's context ({context_tokens}); lower it")
    tokens = first_tokens_with_text(tokenizer, text, wanted)
    if long_tokens and len(tokens.ids) < long_tokens:
        raise UserError(f"--long-tokens {wanted}: {path} has {len(tokens.ids)} tokens; lower it or leave it out")
    if len(tokens.ids) < 2:
        raise UserError(f"TEXT {path}: has fewer than 2 tokens, so nothing to predict; give a longer text")
    return tokens


def _plan(options: Options, long_tokens: int, scorer_config: Any) -> WindowPlan:
    scorer_context = scorer_config.max_position_embeddings if scorer_config else long_tokens
    short_tokens, stride_tokens = options.windows(long_tokens, scorer_context)
    if scorer_config and short_tokens > scorer_context:
        raise UserError(f"--short-tokens {short_tokens}: exceeds the scorer's context ({scorer_context}); lower it")
    try:
        return plan_windows(long_tokens, short_tokens, stride_tokens)
    except ValueError as error:
        raise UserError(f"--short-tokens, --stride-tokens: {error}; change one of them") from None


def _load(model_dir: Path, inspection: Inspection) -> Any:
    try:
        return load_model(model_dir, inspection.precision).to(inspection.device).eval()
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{model_dir}: the model cannot be loaded ({reason}); give a whole checkpoint") from error
