"""The synthetic novel as a judge: what a model and the scores made with it do on tokens whose kind is known.

All measures of a sequence come from one long forward pass and the frozen scorer's NLL of the same tokens; the NLL of
the first `short_tokens` tokens is the model's own short-context NLL (causal: a prefix knows nothing of what follows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.documents import Kind
from tokenweight.evaluation.benchmark import Benchmark, Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    import torch

KINDS = ("long_recall", "short_recall", "name", "introduction", "hard", "easy")  # of corpus.documents.Kind
RECALL = "recall"  # by distance: a unit's `length_tokens` is the farthest
TASKS = (
    *(f"abs_pmi-{kind}" for kind in KINDS), "auc", RECALL, *(f"nll-{kind}" for kind in KINDS), "nll", "nll-short_context",
)  # fmt: skip
LOGITS_ROWS = 512  # rows of logits that exist at a time where the greedy prediction is read
RECALLS = (Kind.LONG_RECALL, Kind.SHORT_RECALL)
Floats = NDArray[np.float64]


class Planted(Benchmark):
    name = "planted"
    offered = ("sweep",)
    tasks: ClassVar = {task: Task(metric=task) for task in TASKS}
    reads_sequences = True

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """Recall by distance has a unit for each multiple of the short context, up to the long one."""
        short_tokens = evaluation.planted.short_tokens
        distances = (*range(short_tokens, context_tokens, short_tokens), context_tokens)
        plain = [Unit(self.name, task) for task in TASKS if task != RECALL]
        return [*plain, *(Unit(self.name, RECALL, distance) for distance in distances)]

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each sequence for each unit that the sequence has tokens for."""
        import torch

        from tokenweight.training.sequences import open_scores, open_tokens

        planted, (chunk_dir, score_dir) = evaluation.planted, runs[0].prepared_dirs
        tokens = open_tokens(chunk_dir)
        kinds, distances = (np.load(chunk_dir / f"{name}.npy", mmap_mode="r") for name in ("kinds", "distances"))
        scores = open_scores(score_dir, planted.sequences)
        nll_model = model.with_nll_head(self.name)
        known = set.intersection(*map(set, rows.values()))
        for done, sequence in enumerate(sorted(set(range(planted.sequences)) - known), start=len(known) + 1):
            ids = np.asarray(tokens[sequence], dtype=np.int64)
            long_nll, greedy = _read(nll_model, torch.from_numpy(ids).to(nll_model.device))
            shard, row = scores[sequence]
            values = measures(
                long_nll,
                shard[row].astype(np.float64),
                greedy == ids[1:],
                np.asarray(kinds[sequence, 1:]),
                np.asarray(distances[sequence, 1:]),
                planted.short_tokens,
                list(rows),
            )
            metrics = {unit: unit.task.partition("-")[0] for unit in values}
            made = {unit: [model.row_of(sequence, ids, metrics[unit], value)] for unit, value in values.items()}
            yield Step(made, done, planted.sequences)
        yield Step({}, planted.sequences, complete={unit: {"sequences": planted.sequences} for unit in rows})


def _read(model: Any, token_ids: torch.Tensor) -> tuple[Floats, NDArray[np.int64]]:
    """NLL (nats) and greedy prediction of each token but the first; token_ids [N] -> float64 [M], int64 [M]."""
    import torch

    from tokenweight.weighting import per_token_nll

    with torch.no_grad():
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
    abs_pmi, positive = np.abs(long_nll - short_nll), kinds == Kind.LONG_RECALL
    found: dict[Unit, float] = {}
    for unit in units:
        task, _, kind = unit.task.partition("-")
        values = abs_pmi if task == "abs_pmi" else long_nll
        if task == "auc":
            if positive.any() and not positive.all():
                found[unit] = roc_auc(abs_pmi, positive)
            continue
        if task == RECALL:
            farthest = unit.length_tokens or 0
            begin = (farthest - 1) // short_tokens * short_tokens
            chosen = np.isin(kinds, RECALLS) & (distances > begin) & (distances <= farthest)
            values = right.astype(np.float64)
        elif kind == "short_context":
            chosen = np.arange(len(kinds)) < short_tokens - 1
        else:
            chosen = np.equal(kinds, Kind[kind.upper()]) if kind else np.ones(len(kinds), np.bool_)
        if chosen.any():
            found[unit] = float(values[chosen].mean())
    return found


def roc_auc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    """How often a positive has the higher score than a negative, ties counting half (Mann-Whitney U / n+ n-)."""
    from scipy.stats import mannwhitneyu

    above, below = scores[positive], scores[~positive]
    return float(mannwhitneyu(above, below, method="asymptotic").statistic) / (len(above) * len(below))
