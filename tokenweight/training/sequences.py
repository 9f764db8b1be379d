"""Training sequences: the rows of a chunk artifact, in their order, each with its frozen scores if there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tokenweight.errors import StageError, UserError
from tokenweight.training.score_store import Scores

TokenRows = npt.NDArray[np.uint32]


def open_tokens(chunk_dir: Path) -> TokenRows:
    """Memory-mapped token ids of a chunk artifact: uint32 [n_sequences, long_tokens]."""
    path = chunk_dir / "tokens.npy"
    if not path.is_file():
        raise UserError(f"{path}: not there; give the directory that the chunk stage wrote")
    tokens: TokenRows = np.load(path, mmap_mode="r")
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise UserError(f"{path}: shape {tokens.shape}, expected [sequences, tokens]; write it with the chunk stage")
    return tokens


class TrainingRows(Dataset[dict[str, Tensor | int]]):
    """The first `rows` sequences, in order (from the beginning again where there are fewer): no shuffling here."""

    def __init__(self, tokens: TokenRows, rows: int, vocabulary_tokens: int, scores: Scores | None) -> None:
        self.tokens, self.rows, self.vocabulary_tokens, self.scores = tokens, rows, vocabulary_tokens, scores

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Tensor | int]:
        """input_ids int64 [N], sequence_id, and with a frozen scorer short_nll fp32 [N - 1]."""
        row = index % len(self.tokens)
        ids = np.asarray(self.tokens[row], dtype=np.int64)
        if ids.max() >= self.vocabulary_tokens:
            raise StageError(f"sequence {row} holds token {ids.max()}, the model knows {self.vocabulary_tokens}")
        item: dict[str, Tensor | int] = {"input_ids": torch.from_numpy(ids), "sequence_id": index}
        if self.scores is not None:
            item["short_nll"] = torch.from_numpy(np.array(self.scores.row(row)))
        return item
