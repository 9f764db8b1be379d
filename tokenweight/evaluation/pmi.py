"""The PMI of every token of the validation documents (Figure 3), streamed in chunks of the model's context.

PMI = log p_long - log p_short (Appendix A: conditional on the near context). p_long: the model on the whole chunk;
p_short: the scorer on short windows of it, exactly as in training. Chunks are training's (BOS and N - 1 tokens where the
tokenizer adds BOS), but a document's remainder is kept, so that every token is in. Nothing is held for longer than a
chunk but a document's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.sources import documents
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.pmi_histogram import ChunkValues, tally
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Evaluation, Pmi
from tokenweight.training.models import load_model
from tokenweight.training.scoring import windows_per_batch
from tokenweight.training.vocabulary import bos_token_id, load_tokenizer, vocabulary_sha256
from tokenweight.weighting import install_head, model_nll, plan_windows, score_windows

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

METRIC = "pmi"
Ids = NDArray[np.uint32]


@dataclass(frozen=True)
class Chunk:
    """A piece of a document as the model reads it: its number among all chunks, and the document's token it begins at."""

    index: int
    document: int
    first_token: int
    ids: Ids  # [at most the context], BOS included


def chunk_rows(
    evaluation: Evaluation, harness: LoadedModel, scorer_dir: Path | None, known: Mapping[int, Row]
) -> Iterator[tuple[int, Row, ChunkValues]]:
    """(document, row, values) of each chunk, in order; `known`: rows of the first chunks, which are passed over.

    `scorer_dir`: a frozen scorer; None: the model itself.

    Raises:
        UserError: the head changes its logits, or the scorer does not fit the model or the windows.
    """
    pmi, model = evaluation.pmi, harness.lm.model
    try:
        install_head(model)
    except ValueError as error:
        raise UserError(f"pmi: {error}; choose --benchmarks without pmi") from None
    scorer = load_scorer(scorer_dir, pmi.short_tokens, harness) if scorer_dir else None
    bos = bos_token_id(harness.lm.tokenizer, (scorer or model).config)
    for chunk in chunks(evaluation, Encoder(harness.checkpoint_dir), harness.context_tokens, known):
        ids = torch.from_numpy(chunk.ids.astype(np.int64)).to(model.device)[None]
        values = score(ids, pmi, model, scorer, bos)
        yield chunk.document, _row(chunk, values, pmi.shift_k, harness.bos_tokens(chunk.ids.tolist())), values


def chunks(
    evaluation: Evaluation, encoder: Encoder, long_tokens: int, known: Mapping[int, Row] | None = None
) -> Iterator[Chunk]:
    """All chunks of the validation documents in order; of the first ones, in `known`, no text is tokenised again but
    that of the last document among them."""
    done = len(known or {})
    last = json.loads(known[done - 1].output) if known else None
    index = done
    texts = islice(documents(evaluation.perplexity.corpus, "validation"), evaluation.pmi.documents)
    for document, text in enumerate(texts):
        if last and document < last["document"]:
            continue
        for first_token, ids in document_chunks(encoder.stream(text.text), long_tokens, encoder.bos):
            if last and document == last["document"] and first_token <= last["first_token"]:
                continue
            yield Chunk(index, document, first_token, ids)
            index += 1


def document_chunks(batches: Iterable[Ids], long_tokens: int, bos: int | None) -> Iterator[tuple[int, Ids]]:
    """(first token, ids) of each chunk of at most `long_tokens` tokens, given a document's tokens in batches.

    With BOS chunks follow each other; without, a chunk's first token is the last of the one before: either way every
    token but the first without BOS is predicted exactly once.
    """
    front = np.array([] if bos is None else [bos], np.uint32)
    payload, step = long_tokens - len(front), long_tokens - 1
    waiting, first_token = np.zeros(0, np.uint32), 0
    for batch in batches:
        waiting = np.concatenate([waiting, batch])
        while len(waiting) > payload:  # what is left is the document's end, and a chunk of its own
            yield first_token, np.concatenate([front, waiting[:payload]])
            waiting, first_token = waiting[step:], first_token + step
    if len(front) + len(waiting) > 1:
        yield first_token, np.concatenate([front, waiting])


def load_scorer(scorer_dir: Path, short_tokens: int, harness: LoadedModel) -> Any:
    """The frozen scorer beside the model, in its precision. UserError: another vocabulary, or a shorter context."""
    tokenizer = load_tokenizer(scorer_dir)
    if vocabulary_sha256(tokenizer) != vocabulary_sha256(harness.lm.tokenizer):
        raise UserError("the frozen scorer: has another vocabulary than the model; take one that shares it")
    model = harness.lm.model
    scorer = load_model(scorer_dir, model.dtype).to(model.device).eval()
    if short_tokens > scorer.config.max_position_embeddings:
        raise UserError(
            f"evaluation.pmi.short_tokens: {short_tokens} exceeds the scorer's context "
            f"({scorer.config.max_position_embeddings}); lower it"
        )
    return scorer


@torch.no_grad()
def score(ids: torch.Tensor, pmi: Pmi, model: Any, scorer: Any | None, bos: int | None) -> ChunkValues:
    """Both NLLs of one chunk, ids int64 [1, tokens]. A chunk no longer than a window has no far context."""
    tokens = ids.shape[1]
    long_nll = model_nll(model, ids)
    short_tokens = min(pmi.short_tokens, tokens)
    plan = plan_windows(tokens, short_tokens, min(pmi.stride_tokens, short_tokens - 1))
    short_nll = score_windows(
        scorer or model,
        ids,
        plan,
        bos_token_id=bos,
        windows_per_batch=windows_per_batch(plan, 1),
        first_window=scorer is not None,
    )
    if scorer is None:
        short_nll = plan.with_own_context(short_nll, long_nll)
    long, short = (nll[0].float().cpu().numpy() for nll in (long_nll, short_nll))
    return ChunkValues(long, short, plan.fills[0][1])


def _row(chunk: Chunk, values: ChunkValues, shift_k: float, bos_tokens: int | None) -> Row:
    mean = float(values.pmi.mean(dtype=np.float64))
    if not np.isfinite(mean):
        raise StageError(
            f"pmi: document {chunk.document} from token {chunk.first_token} gives an NLL that is not finite"
        )
    told = {"document": chunk.document, "first_token": chunk.first_token, **tally(values, shift_k)}
    return Row(
        doc_id=chunk.index,
        prompt_sha256=hashlib.sha256(chunk.ids.astype("<u4").tobytes()).hexdigest(),
        n_prompt_tokens=len(chunk.ids),
        untruncated_tokens=None,
        truncated=False,
        length_words=None,
        output=json.dumps(told),
        filtered="",
        reference="[]",
        metric=METRIC,
        score=mean,
        bos_tokens=bos_tokens,
    )
