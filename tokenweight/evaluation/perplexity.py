"""Perplexity by context length (Table 9): mean NLL of the first N tokens of each validation document.

One pass over the longest length serves all lengths: the NLL of a prefix is a prefix of the NLLs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tokenweight.corpus.encoding import encode_prefix
from tokenweight.corpus.sources import documents
from tokenweight.errors import UserError
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Perplexity
from tokenweight.weighting import install_head, model_nll

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

METRIC = "nll"


@dataclass(frozen=True)
class DocumentRows:
    """What one validation document gave: a row per length that it can fill, and the lengths that it cannot."""

    doc_id: int
    rows: dict[int, Row]
    too_short_for: tuple[int, ...]


def document_rows(
    lengths_tokens: Sequence[int], perplexity: Perplexity, harness: LoadedModel, known: set[int]
) -> Iterator[DocumentRows]:
    """Rows of each validation document at each length; documents in `known` (doc_id) are passed over."""
    model = harness.lm.model
    try:
        install_head(model)
    except ValueError as error:
        raise UserError(f"perplexity: {error}; choose --benchmarks without perplexity") from None
    texts = (document.text for document in islice(documents(perplexity.corpus, "validation"), perplexity.documents))
    for doc_id, text in enumerate(texts):
        if doc_id in known:
            continue
        ids = first_tokens(harness.lm.tokenizer, text, max(lengths_tokens))
        fitting = [n for n in lengths_tokens if n <= len(ids)]
        rows = _rows(doc_id, ids[: max(fitting)], fitting, harness) if fitting else {}
        yield DocumentRows(doc_id, rows, tuple(n for n in lengths_tokens if n > len(ids)))


def _rows(doc_id: int, ids: list[int], lengths_tokens: list[int], harness: LoadedModel) -> dict[int, Row]:
    model = harness.lm.model
    with torch.no_grad():
        nll = model_nll(model, torch.tensor([ids], device=model.device))[0].double().cpu().numpy()
    bos_tokens = harness.bos_tokens(ids)
    return {n: _row(doc_id, ids[:n], float(nll[: n - 1].mean()), bos_tokens) for n in lengths_tokens}


def _row(doc_id: int, ids: list[int], mean_nll: float, bos_tokens: int | None) -> Row:
    return Row(
        doc_id=doc_id,
        prompt_sha256=hashlib.sha256(np.asarray(ids, dtype="<u4").tobytes()).hexdigest(),
        n_prompt_tokens=len(ids),
        untruncated_tokens=None,
        truncated=False,
        length_words=None,
        output="",
        filtered="",
        reference="[]",
        metric=METRIC,
        score=mean_nll,
        bos_tokens=bos_tokens,
    )


def first_tokens(tokenizer: Any, text: str, n_tokens: int) -> list[int]:
    """The first `n_tokens` ids of a text (BOS included where the tokenizer adds one), or all if there are fewer."""
    ids: list[int] = encode_prefix(tokenizer, text, n_tokens)["input_ids"]
    return ids[:n_tokens]
