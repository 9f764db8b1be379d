"""Frozen scores on disk: shards of float32 NLL (safetensors) whose headers say whose and of which tokens they are."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tokenweight.errors import StageError
from tokenweight.recipes.frozen import Frozen
from tokenweight.weighting.windows import WindowPlan

NLL, HEADER = "nll", "header"  # the tensor of a shard, fp32 [sequences, M], and its metadata


class ShardHeader(Frozen):
    """What a shard holds; equal headers mean interchangeable shards."""

    first_sequence: int
    last_sequence: int
    token_ids_sha256: str
    vocabulary_sha256: str
    scorer_fingerprint: str
    dtype: str  # of the scorer's arithmetic; the scores themselves are float32
    windows: WindowPlan

    @property
    def sequences(self) -> int:
        """Number of rows in the shard."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True)
class Scores:
    """Memory-mapped short-context NLL by sequence: :meth:`row` gives float32 [M]."""

    shards: tuple[Any, ...]  # each gives a row by its number
    first_sequences: tuple[int, ...]

    def row(self, sequence: int) -> npt.NDArray[np.float32]:
        """NLL of each prediction of one sequence."""
        shard = int(np.searchsorted(self.first_sequences, sequence, side="right")) - 1
        values: npt.NDArray[np.float32] = self.shards[shard][sequence - self.first_sequences[shard]]
        return values


def shard_path(score_dir: Path, index: int) -> Path:
    """Where a shard lies."""
    return score_dir / f"shard-{index:05d}.safetensors"


def digest_rows(tokens: npt.NDArray[np.uint32], first: int, last: int) -> str:
    """SHA-256 of the token ids of sequences first..last (both included), as little-endian uint32."""
    digest = hashlib.sha256()
    for row in range(first, last + 1):
        digest.update(np.ascontiguousarray(tokens[row], dtype="<u4").tobytes())
    return digest.hexdigest()


def write_shard(path: Path, nll: npt.NDArray[np.float32], header: ShardHeader) -> None:
    """Write a shard so that it exists complete or not at all."""
    partial = path.with_suffix(".partial")
    save_file({NLL: nll}, partial, metadata={HEADER: header.model_dump_json()})
    os.replace(partial, path)


def open_shard(path: Path) -> tuple[ShardHeader, Any]:
    """Header and rows of a shard; StageError names what is wrong."""
    way_out = f"delete {path.parent.name} and score again"
    if not path.is_file():
        raise StageError(f"{path}: missing; {way_out}")
    try:
        file = safe_open(path, framework="np")
        return ShardHeader.model_validate_json((file.metadata() or {}).get(HEADER, "")), file.get_slice(NLL)
    except (SafetensorError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StageError(f"{path}: not a shard of scores, or truncated ({reason}); {way_out}") from error


def open_scores(
    score_dir: Path,
    tokens: npt.NDArray[np.uint32],
    plan: WindowPlan,
    *,
    sequences: int,
    vocabulary_sha256: str,
    scorer_fingerprint: str | None = None,
) -> Scores:
    """Map the scores of sequences 0..sequences-1 after checking that they belong to these tokens and windows.

    Raises StageError naming the shard that is missing, truncated, or foreign: of other token ids, another
    vocabulary, other windows, or another scorer than `scorer_fingerprint` (None: than the first shard's).
    """
    shards: list[Any] = []
    firsts: list[int] = []
    covered = 0
    while covered < sequences:
        path = shard_path(score_dir, len(shards))
        header, rows = open_shard(path)
        scorer_fingerprint = scorer_fingerprint or header.scorer_fingerprint
        wanted = {
            "first_sequence": covered,
            "token_ids_sha256": digest_rows(tokens, covered, min(header.last_sequence, len(tokens) - 1)),
            "vocabulary_sha256": vocabulary_sha256,
            "scorer_fingerprint": scorer_fingerprint,
            "windows": plan,
        }
        foreign = [name for name, value in wanted.items() if getattr(header, name) != value]
        if foreign:
            raise StageError(f"{path}: made for another {foreign[0]}; delete {score_dir.name} and score again")
        shards.append(rows)
        firsts.append(covered)
        covered = header.last_sequence + 1
    return Scores(tuple(shards), tuple(firsts))
