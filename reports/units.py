"""Read evaluation artifacts: one unit's samples and record, or the reason why they cannot be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.pipeline.manifest import UnitEntry
from tokenweight.pipeline.store import read_record

UnitStatus = Literal["complete", "partial", "missing", "refused"]
Floats = npt.NDArray[np.float64]

_COLUMNS = ("doc_id", "reference", "metric", "score")
# What else a benchmark's columns need. Perplexity has no reference: the hash of the token ids tells which text it was.
_MORE_COLUMNS = {
    "longbench": ("untruncated_tokens", "length_words"),
    "bbh": ("tolerant_score",),
    "perplexity": ("prompt_sha256",),
    "phrase": ("prompt_sha256",),
}
NOT_EVALUATED = "not evaluated yet"
OUTDATED = "stale, the store has it with another fingerprint only (other settings, scorer, data or code)"
_NOTHING: Floats = np.empty(0)


@dataclass(frozen=True)
class UnitResult:
    """Samples of one unit in the order of their doc_id; arrays are of one length, NaN where a value is absent."""

    entry: UnitEntry
    status: UnitStatus
    reason: str = ""  # why it is not complete
    n_expected: int | None = None  # samples, by the manifest, else by the evaluation's own summary
    scores: Floats = field(default_factory=lambda: _NOTHING)
    tolerant_scores: Floats = field(default_factory=lambda: _NOTHING)  # BBH
    untruncated_tokens: Floats = field(default_factory=lambda: _NOTHING)
    length_words: Floats = field(default_factory=lambda: _NOTHING)
    record: dict[str, Any] = field(default_factory=dict)
    data_digest: str = ""  # over doc_ids, references, metrics (perplexity: token ids): which questions were asked
    directory: Path = Path()  # of the artifact, where there is one
    phrase_tokens: tuple[str, ...] = ()  # phrase: text of each token
    about: str = ""  # phrase: where it stands, and why it
    flags: tuple[str, ...] = ()  # what the evaluation itself found implausible


def read_units(entries: Iterable[UnitEntry], store_root: Path) -> list[UnitResult]:
    """Units from the store, in the order of `entries`; see :func:`read_unit`."""
    held = frozenset(_name(path.name) for path in store_root.glob("evaluate/*"))
    # In one thread: several wait for one another longer than they read.
    return [read_unit(entry, store_root, held) for entry in entries]


def read_unit(entry: UnitEntry, store_root: Path, held: frozenset[str] = frozenset()) -> UnitResult:
    """One unit from the store. Never raises for what is wrong with an artifact: the result says it.

    `held`: names of the artifacts in the store, to tell a unit that other settings made from one that is new.
    """
    directory = store_root / entry.address
    record = read_record(directory)
    if record is None:
        if directory.exists():
            return _empty(entry, "refused", "its record cannot be read")
        return _empty(entry, "missing", OUTDATED if _name(directory.name) in held else NOT_EVALUATED)
    if record.get("fingerprint") != entry.fingerprint:
        return _empty(entry, "refused", "stale: its record has another fingerprint than the recipe")
    try:
        columns = [*_COLUMNS, *_MORE_COLUMNS.get(entry.benchmark, ())]
        # From bytes: pyarrow opens a path more slowly than it reads so small a file.
        source = pa.BufferReader((directory / "rows.parquet").read_bytes())
        table = pq.ParquetFile(source).read(columns=columns, use_threads=False)
        summary = _summary(directory / "summary.json")
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        return _empty(entry, "refused", f"unreadable ({type(error).__name__})")
    return replace(_result(entry, record, table, summary), directory=directory)


def _name(directory: str) -> str:
    """An artifact's name without its fingerprint."""
    return directory.rpartition("-")[0]


def _empty(entry: UnitEntry, status: UnitStatus, reason: str) -> UnitResult:
    return UnitResult(entry, status, reason, entry.n_expected)


def _result(entry: UnitEntry, record: dict[str, Any], table: pa.Table, summary: dict[str, Any]) -> UnitResult:
    doc_ids = _numbers(table["doc_id"])
    if np.any(doc_ids[1:] < doc_ids[:-1]):
        order = np.argsort(doc_ids, kind="stable")
        doc_ids, table = doc_ids[order], table.take(order)
    scores = _floats(table, "score")
    n_expected = entry.n_expected or summary.get("n_expected")
    status, reason = _judge(n_expected, doc_ids, scores)
    return UnitResult(
        entry,
        status,
        reason,
        n_expected,
        scores=scores,
        tolerant_scores=_floats(table, "tolerant_score"),
        untruncated_tokens=_floats(table, "untruncated_tokens"),
        length_words=_floats(table, "length_words"),
        record=record,
        data_digest=_questions(doc_ids, table),
        phrase_tokens=tuple(map(str, summary.get("tokens") or ())),
        about=str(summary.get("about") or ""),
        flags=tuple(map(str, summary.get("flags") or ())),
    )


def _questions(doc_ids: npt.NDArray[np.int64], table: pa.Table) -> str:
    digest = hashlib.sha256(doc_ids.tobytes())
    for name in ("reference", "metric", "prompt_sha256"):
        if name in table.column_names:
            digest.update("\x1f".join(map(str, table[name].to_pylist())).encode())
    return digest.hexdigest()


def _judge(n_expected: int | None, doc_ids: npt.NDArray[np.int64], scores: Floats) -> tuple[UnitStatus, str]:
    n = len(scores)
    if np.any(doc_ids[1:] == doc_ids[:-1]):
        return "refused", "the same sample appears twice"
    if n_expected is not None and n > n_expected:
        return "refused", f"{n} samples where {n_expected} were asked for"
    if not np.all(np.isfinite(scores)):
        return "refused", f"{int(np.sum(~np.isfinite(scores)))} of {n} samples have no score"
    if n == 0 or (n_expected is not None and n < n_expected):
        return "partial", f"{n} of {n_expected or 'all'} samples"
    return "complete", ""


def _floats(table: pa.Table, name: str) -> Floats:
    """Numbers as float64, null as NaN, and all NaN where the column was not read."""
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    return _numbers(table[name]).astype(np.float64, copy=False)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as an array, null as NaN. Not by pyarrow's to_numpy: that imports pandas, a third of a table's time."""
    if column.null_count or not len(column) or column.type not in (pa.int64(), pa.float64()):
        return np.array(column.to_pylist(), np.float64)
    array: npt.NDArray[Any] = np.from_dlpack(column.combine_chunks())
    return array


def _summary(file: Path) -> dict[str, Any]:
    summary = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not isinstance(summary, dict):
        raise TypeError(f"{file.name} holds no mapping")
    return summary
