"""The synthetic novel as a judge: what a model and the scores made with it do on tokens whose kind is known.

All measures of a sequence come from one long forward pass and the frozen scorer's NLL of the same tokens; the NLL of
the first `short_tokens` tokens is the model's own short-context NLL (causal: a prefix knows nothing of what follows).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokenweight.corpus.documents import Kind
from tokenweight.errors import StageError
from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import PLANTED_RECALL, Unit
from tokenweight.recipes.schema import Planted
from tokenweight.training.score_store import open_scores
from tokenweight.training.sequences import open_tokens
from tokenweight.training.vocabulary import vocabulary_sha256
from tokenweight.weighting import install_head, per_token_nll, plan_windows

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

LOGITS_ROWS = 512  # rows of logits that exist at a time where the greedy prediction is read
RECALLS = (Kind.LONG_RECALL, Kind.SHORT_RECALL)
Floats = NDArray[np.float64]


def sequence_rows(
    units: Sequence[Unit], planted: Planted, chunk_dir: Path, score_dir: Path, harness: LoadedModel, known: set[int]
) -> Iterator[tuple[int, dict[Unit, Row]]]:
    """(sequence, its row for each unit that it has tokens for); sequences in `known` are passed over."""
    tokens = open_tokens(chunk_dir)
    kinds, distances = (np.load(chunk_dir / f"{name}.npy", mmap_mode="r") for name in ("kinds", "distances"))
    plan = plan_windows(tokens.shape[1], planted.short_tokens, planted.stride_tokens)
    vocabulary = vocabulary_sha256(harness.lm.tokenizer)
    scores = open_scores(score_dir, tokens, plan, sequences=planted.sequences, vocabulary_sha256=vocabulary)
    model = harness.lm.model
    install_head(model)
    for sequence in range(planted.sequences):
        if sequence in known:
            continue
        ids = np.asarray(tokens[sequence], dtype=np.int64)
        long_nll, greedy = _read(model, torch.from_numpy(ids).to(model.device))
        values = measures(
            long_nll,
            scores.row(sequence).astype(np.float64),
            greedy == ids[1:],
            np.asarray(kinds[sequence, 1:]),
            np.asarray(distances[sequence, 1:]),
            planted.short_tokens,
            units,
        )
        bos_tokens = harness.bos_tokens(ids.tolist())
        yield sequence, {unit: _row(sequence, ids, unit, value, bos_tokens) for unit, value in values.items()}


@torch.no_grad()
def _read(model: Any, token_ids: torch.Tensor) -> tuple[Floats, NDArray[np.int64]]:
    """NLL (nats) and greedy prediction of each token but the first; token_ids [N] -> float64 [M], int64 [M]."""
    hidden = model.base_model(input_ids=token_ids[None], use_cache=False).last_hidden_state[0, :-1]
    head = model.get_output_embeddings()
    nll = per_token_nll(hidden, head.weight, token_ids[1:], bias=head.bias)
    greedy = torch.cat([head(rows).argmax(dim=-1) for rows in hidden.split(LOGITS_ROWS)])
    return nll.double().cpu().numpy(), greedy.cpu().numpy()


def measures(
    long_nll: Floats,
    short_nll: Floats,
    right: NDArray[np.bool_],
    kinds: NDArray[np.uint8],
    distances: NDArray[np.uint32],
    short_tokens: int,
    units: Sequence[Unit],
) -> dict[Unit, float]:
    """Each unit's value for one sequence, all arrays [M]; a unit that the sequence has no token for is left out.

    abs_pmi-K: mean |long - short| (Eq. 5) over tokens of kind K; auc: ROC AUC of |long - short| for long-range
    recalls against all other tokens; recall: share of recalled values, from more than `short_tokens` less than the
    unit's distance up to that distance, that the model predicts greedily; nll-K, nll: mean NLL over kind K, over all;
    nll-short_context: mean NLL of the first `short_tokens` tokens.
    """
    abs_pmi = np.abs(long_nll - short_nll)
    found: dict[Unit, float] = {}
    for unit in units:
        task, _, kind = unit.task.partition("-")
        if task == PLANTED_RECALL:
            farthest = unit.length_tokens or 0
            begin = (farthest - 1) // short_tokens * short_tokens
            chosen = np.isin(kinds, RECALLS) & (distances > begin) & (distances <= farthest)
            values = right.astype(np.float64)
        elif task == "auc":
            positive = kinds == Kind.LONG_RECALL
            if positive.any() and not positive.all():
                found[unit] = roc_auc(abs_pmi, positive)
            continue
        else:
            values = abs_pmi if task == "abs_pmi" else long_nll
            chosen = _chosen(kind, kinds, short_tokens)
        if chosen.any():
            found[unit] = float(values[chosen].mean())
    return found


def _chosen(kind: str, kinds: NDArray[np.uint8], short_tokens: int) -> NDArray[np.bool_]:
    if not kind:
        return np.ones(len(kinds), dtype=np.bool_)
    if kind == "short_context":
        return np.arange(len(kinds)) < short_tokens - 1
    return np.equal(kinds, Kind[kind.upper()])


def roc_auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """How often a positive has the higher score than a negative, ties counting half (Mann-Whitney U / n+ n-)."""
    from scipy.stats import rankdata

    n_positive = int(positive.sum())
    rank_sum = float(rankdata(scores)[positive].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * (len(scores) - n_positive))


def _row(sequence: int, ids: NDArray[np.int64], unit: Unit, value: float, bos_tokens: int | None) -> Row:
    if not np.isfinite(value):
        raise StageError(f"{unit.id}: sequence {sequence} gives {value}; the model's NLL is not finite")
    return Row(
        doc_id=sequence,
        prompt_sha256=hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest(),
        n_prompt_tokens=len(ids),
        untruncated_tokens=None,
        truncated=False,
        length_words=None,
        output="",
        filtered="",
        reference="[]",
        metric=unit.task.partition("-")[0],
        score=value,
        bos_tokens=bos_tokens,
    )
