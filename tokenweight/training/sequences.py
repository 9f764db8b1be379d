"""What training reads: the rows of a chunk artifact, in their order, each with its frozen scores and documents; windows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.numpy import save
from torch import Tensor
from torch.utils.data import Dataset

from tokenweight.errors import StageError, UserError
from tokenweight.files import replace_file
from tokenweight.optional import by_parity
from tokenweight.recipes.schema import Scorer
from tokenweight.training.stages import Score, Train
from tokenweight.weighting.windows import WindowPlan, plan_windows

TokenRows = npt.NDArray[np.uint32]
Scores = list[tuple[Any, int]]  # of each sequence a shard and a row of it
NLL, ENTROPY = "nll", "entropy"  # the tensors of a shard of scores; the latter where it was asked for


def open_tokens(chunk_dir: Path, sequences: int = 0) -> TokenRows:
    """Memory-mapped token ids of a chunk artifact: uint32 [n_sequences, long_tokens]; UserError for less than `sequences`."""
    tokens: TokenRows = np.load(chunk_dir / "tokens.npy", mmap_mode="r")
    if len(tokens) < sequences:
        raise UserError(
            f"{chunk_dir}: {len(tokens)} sequences, training reads {sequences}; give a larger corpus or fewer steps"
        )
    return tokens


def open_scores(score_dir: Path, sequences: int, tensor: str = NLL) -> Scores:
    """Short-context NLL, or another `tensor`, of at least `sequences` sequences, float32 [M] each, mapped from a score artifact.

    What its files hold the store has compared with its record. StageError where there are fewer.
    """
    scores: Scores = []
    for path in takewhile(Path.is_file, (shard_path(score_dir, number) for number in count())):
        rows = safe_open(path, framework="np").get_slice(tensor)
        scores += [(rows, row) for row in range(rows.get_shape()[0])]
    if len(scores) < sequences:
        raise StageError(f"{score_dir}: has scores of {len(scores)} sequences, {sequences} are read; score them again")
    return scores


@dataclass(frozen=True)
class Documents:
    """Which of `tokens` tokens of each sequence begins a document (its part in the sequence): `starts` [pieces], by sequence."""

    tokens: int
    starts: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]  # [sequences + 1]: where in `starts` each sequence begins

    @property
    def several(self) -> bool:
        """Whether any sequence has more than one."""
        return len(self.starts) >= len(self.bounds)

    def positions(self, row: int) -> Tensor:
        """Of each token in its document: int64 [N], 0 at each begin."""
        starts, places = self.starts[self.bounds[row] : self.bounds[row + 1]], np.arange(self.tokens)
        return torch.from_numpy(places - starts[np.searchsorted(starts, places, "right") - 1])

    @property
    def position_counts(self) -> Tensor:
        """How often each position is predicted: fp64 [N]. A sequence's first token is not."""
        ends = np.append(self.starts[1:], self.tokens)
        ends[self.bounds[1:] - 1] = self.tokens
        longer = np.bincount(ends - self.starts, minlength=self.tokens + 1)[::-1].cumsum()[::-1][1:]
        longer[0] -= len(self.bounds) - 1
        return torch.from_numpy(longer.astype(np.float64))


def open_documents(chunk_dir: Path, sequences: int) -> Documents:
    """The documents of the first `sequences` of a chunk artifact; a separator belongs to what is before it."""
    import pyarrow.parquet as pq  # starts a thread

    index = pq.read_table(chunk_dir / "sequences.parquet", columns=["sequence_id", "position"]).to_pandas()
    index = index[(index["sequence_id"] < sequences) & (index["position"] > 0)]
    account = json.loads((chunk_dir / "accounting.json").read_text(encoding="utf-8"))
    rows = np.append(index["sequence_id"], np.arange(sequences))  # the first begins with the sequence, BOS or not
    starts = np.append(index["position"] + int(account["bos"]), np.zeros(sequences, np.int64))
    order = np.lexsort((starts, rows))
    return Documents(account["long_tokens"], starts[order], np.searchsorted(rows[order], np.arange(sequences + 1)))


def window_plan(stage: Train, tokens: TokenRows) -> WindowPlan | None:
    """The scorer's windows over the chunk artifact's sequences; None where weights need no short context."""
    if not stage.weighting.needs_short_nll or stage.scorer is None:
        return None
    plan = by_parity(stage.parity, plan_windows) if stage.scores_itself else plan_windows
    return scorer_windows(tokens.shape[1], stage.scorer, plan)


def scorer_windows(
    long_tokens: int, scorer: Scorer | Score, plan: Callable[[int, int, int], WindowPlan] = plan_windows
) -> WindowPlan:
    """A scorer's windows over sequences of `long_tokens`; UserError where they do not fit."""
    try:
        return plan(long_tokens, scorer.short_tokens, scorer.stride_tokens)
    except ValueError as error:
        raise UserError(f"scorer: {error}; change it in the recipe") from error


def shard_path(score_dir: Path, index: int) -> Path:
    return score_dir / f"shard-{index:05d}.safetensors"


def write_shard(path: Path, **tensors: npt.NDArray[np.float32]) -> None:
    """Write scores, each float32 [sequences, M], so that the shard exists complete or not at all."""
    replace_file(path, save(tensors))


@dataclass(eq=False)
class TrainingRows(Dataset[dict[str, Tensor | int]]):
    """The first `rows` sequences, in order (from the beginning again where there are fewer): no shuffling here."""

    tokens: TokenRows
    rows: int
    vocabulary_tokens: int
    scores: Scores | None
    documents: Documents | None = None

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Tensor | int]:
        """input_ids int64 [N], sequence_id; with a frozen scorer short_nll fp32 [N - 1]; with documents position_ids [N]."""
        row = index % len(self.tokens)
        ids = np.asarray(self.tokens[row], dtype=np.int64)
        if ids.max() >= self.vocabulary_tokens:
            raise StageError(f"sequence {row} holds token {ids.max()}, the model knows {self.vocabulary_tokens}")
        item: dict[str, Tensor | int] = {"input_ids": torch.from_numpy(ids), "sequence_id": index}
        if self.scores is not None:
            shard, place = self.scores[row]
            item["short_nll"] = torch.from_numpy(np.array(shard[place]))
        if self.documents is not None:
            item["position_ids"] = self.documents.positions(row)
        return item
