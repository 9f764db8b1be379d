"""Read evaluation artifacts: one unit's samples and record, or the reason why they cannot be used."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.reports.manifest import UnitEntry
from tokenweight.store.store import read_record

UnitStatus = Literal["complete", "partial", "missing", "refused"]
Floats = npt.NDArray[np.float64]

_COLUMNS = ["doc_id", "untruncated_tokens", "length_words", "reference", "metric", "score", "tolerant_score"]
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
    data_digest: str = ""  # sha256 over doc_ids, references and metrics: which questions were asked
    directory: Path = Path()  # of the artifact, where there is one
    flags: tuple[str, ...] = ()  # what the evaluation itself found implausible


def read_unit(entry: UnitEntry, store_root: Path) -> UnitResult:
    """One unit from the store. Never raises for what is wrong with an artifact: the result says it."""
    directory = store_root / entry.address
    record = read_record(directory)
    if record is None:
        if directory.exists():
            return _empty(entry, "refused", "its record cannot be read; run the target again")
        return _empty(entry, "missing", "not evaluated yet")
    if record.get("fingerprint") != entry.fingerprint:
        return _empty(entry, "refused", "stale: its record has another fingerprint than the recipe; run again")
    try:
        table = pq.ParquetFile(directory / "rows.parquet").read(columns=_COLUMNS, use_threads=False)
        summary = _summary(directory / "summary.json")
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        return _empty(entry, "refused", f"unreadable ({type(error).__name__}); run the target again")
    return replace(_result(entry, record, table, summary), directory=directory)


def _empty(entry: UnitEntry, status: UnitStatus, reason: str) -> UnitResult:
    return UnitResult(entry, status, reason, entry.n_expected)


def _result(entry: UnitEntry, record: dict[str, Any], table: pa.Table, summary: dict[str, Any]) -> UnitResult:
    doc_ids = table["doc_id"].to_numpy()
    order = np.argsort(doc_ids, kind="stable")
    doc_ids, table = doc_ids[order], table.take(order)
    scores = _floats(table["score"])
    n_expected = entry.n_expected or summary.get("n_expected")
    status, reason = _judge(n_expected, doc_ids, scores)
    questions = (doc_ids.tolist(), table["reference"].to_pylist(), table["metric"].to_pylist())
    return UnitResult(
        entry,
        status,
        reason,
        n_expected,
        scores=scores,
        tolerant_scores=_floats(table["tolerant_score"]),
        untruncated_tokens=_floats(table["untruncated_tokens"]),
        length_words=_floats(table["length_words"]),
        record=record,
        data_digest=hashlib.sha256(repr(questions).encode()).hexdigest(),
        flags=_flags(summary),
    )


def _judge(n_expected: int | None, doc_ids: npt.NDArray[np.int64], scores: Floats) -> tuple[UnitStatus, str]:
    n = len(scores)
    if len(np.unique(doc_ids)) != n:
        return "refused", "the same sample appears twice"
    if n_expected is not None and n > n_expected:
        return "refused", f"{n} samples where {n_expected} were asked for"
    if not np.all(np.isfinite(scores)):
        return "refused", f"{int(np.sum(~np.isfinite(scores)))} of {n} samples have no score"
    if n == 0 or (n_expected is not None and n < n_expected):
        return "partial", f"{n} of {n_expected or 'all'} samples"
    return "complete", ""


def _floats(column: pa.ChunkedArray) -> Floats:
    """Numbers as float64, null as NaN; a column of nulls has no type of its own."""
    values: Floats = column.cast(pa.float64()).to_numpy()
    return values


def _summary(file: Path) -> dict[str, Any]:
    summary = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not isinstance(summary, dict):
        raise TypeError(f"{file.name} holds no mapping")
    return summary


def _flags(summary: dict[str, Any]) -> tuple[str, ...]:
    """`flags` of a unit's summary: a list of words, or a mapping from word to whether it holds."""
    flags = summary.get("flags") or ()
    if isinstance(flags, dict):
        return tuple(str(name) for name, holds in flags.items() if holds)
    return tuple(str(flag) for flag in flags)
