"""Frozen scores on disk: shards of float32 NLL with headers that say whose and of which tokens they are."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenweight.errors import StageError
from tokenweight.recipes.schema import Frozen
from tokenweight.weighting.windows import WindowPlan

NllRows = npt.NDArray[np.float32]
NPY_HEADER_BYTES = 128  # of a small array of format 1.0, as numpy.save writes it


class ShardHeader(Frozen):
    """What a shard holds; equal headers mean interchangeable shards."""

    first_sequence: int
    last_sequence: int
    token_ids_sha256: str
    vocabulary_sha256: str
    scorer_fingerprint: str
    dtype: str  # of the scorer's arithmetic; the scores themselves are float32
    long_tokens: int
    short_tokens: int
    stride_tokens: int

    @property
    def sequences(self) -> int:
        """Number of rows in the shard."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True)
class Scores:
    """Memory-mapped short-context NLL by sequence: :meth:`row` gives float32 [M]."""

    shards: tuple[NllRows, ...]
    first_sequences: tuple[int, ...]

    def row(self, sequence: int) -> npt.NDArray[np.float32]:
        """NLL of each prediction of one sequence."""
        shard = int(np.searchsorted(self.first_sequences, sequence, side="right")) - 1
        values: npt.NDArray[np.float32] = self.shards[shard][sequence - self.first_sequences[shard]]
        return values


def shard_path(score_dir: Path, index: int) -> Path:
    """Where a shard lies; its header is its sibling with the suffix .json."""
    return score_dir / f"shard-{index:05d}.npy"


def digest_rows(tokens: npt.NDArray[np.uint32], first: int, last: int) -> str:
    """SHA-256 of the token ids of sequences first..last (both included), as little-endian uint32."""
    digest = hashlib.sha256()
    for row in range(first, last + 1):
        digest.update(np.ascontiguousarray(tokens[row], dtype="<u4").tobytes())
    return digest.hexdigest()


def write_shard(path: Path, nll: NllRows, header: ShardHeader) -> None:
    """Write a shard so that it exists complete or not at all; the header, written last, makes it count."""
    path.with_suffix(".json").unlink(missing_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, nll)
    os.replace(partial, path)
    partial.write_text(json.dumps(header.model_dump(), indent=1) + "\n")
    os.replace(partial, path.with_suffix(".json"))


def shard_is_complete(path: Path, header: ShardHeader) -> bool:
    """Whether an earlier attempt has left exactly this shard, complete."""
    try:
        return read_header(path) == header
    except StageError:
        return False


def read_header(path: Path) -> ShardHeader:
    """The header of a shard whose file has the size that the header implies; StageError names what is wrong."""
    way_out = f"delete {path.parent.name} and score again"
    if not path.is_file() or not path.with_suffix(".json").is_file():
        missing = path if not path.is_file() else path.with_suffix(".json")
        raise StageError(f"{missing}: missing; {way_out}")
    try:
        header = ShardHeader.model_validate_json(path.with_suffix(".json").read_text())
    except ValueError as error:
        raise StageError(f"{path.with_suffix('.json')}: not a score header; {way_out}") from error
    expected = NPY_HEADER_BYTES + 4 * header.sequences * (header.long_tokens - 1)
    if path.stat().st_size != expected:
        raise StageError(f"{path}: {path.stat().st_size} bytes, expected {expected} (truncated?); {way_out}")
    return header


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
    shards: list[NllRows] = []
    firsts: list[int] = []
    covered = 0
    while covered < sequences:
        path = shard_path(score_dir, len(shards))
        header = read_header(path)
        scorer_fingerprint = scorer_fingerprint or header.scorer_fingerprint
        wanted = ShardHeader(
            first_sequence=covered,
            last_sequence=header.last_sequence,
            token_ids_sha256=digest_rows(tokens, covered, min(header.last_sequence, len(tokens) - 1)),
            vocabulary_sha256=vocabulary_sha256,
            scorer_fingerprint=scorer_fingerprint,
            dtype=header.dtype,
            **window_fields(plan),
        )
        foreign = [name for name, value in wanted.model_dump().items() if getattr(header, name) != value]
        if foreign:
            raise StageError(f"{path}: made for another {foreign[0]}; delete {score_dir.name} and score again")
        shards.append(np.load(path, mmap_mode="r"))
        firsts.append(covered)
        covered = header.last_sequence + 1
    return Scores(tuple(shards), tuple(firsts))


def window_fields(plan: WindowPlan) -> dict[str, int]:
    """The three numbers that determine a window plan, as the header names them."""
    fields = asdict(plan)
    return {name: fields[name] for name in ("long_tokens", "short_tokens", "stride_tokens")}
