"""The samples of all rows and seeds as one table, read from the store once; of each unit its record, or why it has none."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.pipeline.manifest import Manifest, Run, StageEntry, UnitEntry
from tokenweight.pipeline.measures import Measure, Perplexity, SampleMean, TaskMean, UnitMean
from tokenweight.pipeline.store import files_fault, read_record

UnitStatus = Literal["complete", "partial", "missing", "refused"]
Field = Literal["score", "tolerant_score", "untruncated_tokens", "length_words"]
Floats = npt.NDArray[np.float64]

_QUESTIONS = ("doc_id", "reference", "metric", "prompt_sha256")
_NUMBERS = ("score", "tolerant_score", "untruncated_tokens", "length_words")
_NO_ROWS = pa.table({"doc_id": pa.array([], pa.int64()), **{name: pa.array([], pa.float64()) for name in _NUMBERS}})


@dataclass(frozen=True)
class UnitResult:
    """What an evaluation left of one unit; `status` says whether its samples can be used."""

    entry: UnitEntry
    status: UnitStatus
    reason: str = ""  # why it is not complete
    n: int = 0
    n_expected: int | None = None  # samples, by the manifest, else by the evaluation's own summary
    record: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    questions: str = ""  # digest of doc_ids, references, metrics, of uncut texts their digests: what was asked
    directory: Path = Path()
    numbers: pa.Table = field(default_factory=lambda: _NO_ROWS)  # of its samples: see Samples.table


class Samples:
    """All samples that the columns of an experiment need.

    `units`: those of each row and seed, by name. `table`: a line for each sample of a complete unit, with its row, seed,
    unit, the digest of the unit's questions, doc_id, score, tolerant_score (BBH), untruncated_tokens and length_words
    (LongBench).
    """

    def __init__(self, units: Mapping[Run, Sequence[UnitResult]]) -> None:
        self.units = units
        whole = [(run, unit) for run, held in units.items() for unit in held if unit.status == "complete"]
        about = pd.DataFrame(
            [(*run, unit.entry.unit, unit.questions) for run, unit in whole],
            columns=["row", "seed", "unit", "questions"],
        )
        numbers = pa.concat_tables([_NO_ROWS, *(unit.numbers for _, unit in whole)], promote_options="permissive")
        lines = about.loc[np.repeat(about.index, [unit.n for _, unit in whole])].reset_index(drop=True)
        self.table = lines.join(numbers.to_pandas())
        self.of_items = cache(self._of_items)

    def _of_items(self, field: Field) -> pd.DataFrame:
        """One number of each sample: a line for each item, a column for each (row, seed), NaN where a run has it not.

        Items are in the order of unit and doc_id. Those of a unit that was asked other questions are other items.
        """
        wide = self.table.pivot(index=["unit", "questions", "doc_id"], columns=["row", "seed"], values=field)
        return wide.astype(np.float64)


def reads(measure: Measure, entry: UnitEntry) -> bool:
    """Whether a measure is over the samples of this unit; none is where it is derived from columns."""
    tasks = (measure.task,) if isinstance(measure, UnitMean | Perplexity) else getattr(measure, "tasks", None)
    length = getattr(measure, "length_tokens", None)
    if (length or isinstance(measure, TaskMean | Perplexity)) and entry.length_tokens != length:
        return False
    return entry.benchmark == getattr(measure, "benchmark", None) and (tasks is None or entry.task in tasks)


def units_of(measure: Measure, units: Iterable[UnitResult]) -> list[UnitResult]:
    """Those of a row's units that the measure reads, in the order of their names."""
    return sorted((unit for unit in units if reads(measure, unit.entry)), key=lambda unit: unit.entry.unit)


def read_samples(manifest: Manifest, store_root: Path) -> Samples:
    """All that the columns need, from the store; what several rows or columns share is read once."""
    held = frozenset(path.name.rpartition("-")[0] for path in store_root.glob("evaluate/*"))
    measures = [column.measure for column in manifest.experiment.columns]
    read = cache(partial(read_unit, store_root=store_root, held=held))  # threads would wait for one another
    units: dict[Run, list[UnitResult]] = {}
    for row in manifest.rows:
        entries = sorted(row.units, key=lambda entry: entry.unit)
        readers = ((entry, [measure for measure in measures if reads(measure, entry)]) for entry in entries)
        are_shares = {entry: any(isinstance(one, SampleMean | TaskMean) for one in of) for entry, of in readers if of}
        units[row.row, row.seed] = [read(entry, are_shares=shares) for entry, shares in are_shares.items()]
    return Samples(units)


def record_of(entry: StageEntry, store_root: Path) -> dict[str, Any] | str:
    """An artifact's record, or why it cannot be used: "" where the store has no such artifact."""
    record = read_record(store_root / entry.address)
    if record is None:
        return "its record cannot be read" if (store_root / entry.address).exists() else ""
    stale = record.get("fingerprint") != entry.fingerprint
    return "stale: its record has another fingerprint than the recipe" if stale else record


def read_unit(
    entry: UnitEntry, store_root: Path, held: frozenset[str] = frozenset(), are_shares: bool = False
) -> UnitResult:
    """A unit and its samples. Never raises for what is wrong with an artifact: the result says it.

    `held`: names of the store's artifacts without fingerprints, to tell a unit that other settings made from one that is new.
    `are_shares`: what reads the scores takes them for shares, so they must be from 0 to 1.
    """
    directory, record = store_root / entry.address, record_of(entry, store_root)
    unit = UnitResult(entry, "refused", n_expected=entry.n_expected)
    if not record:
        stale = "not evaluated with these settings, data and code; the store has such a unit made with others"
        is_stale = directory.name.rpartition("-")[0] in held
        return replace(unit, status="missing", reason=stale if is_stale else "not evaluated yet")
    if isinstance(record, str):
        return replace(unit, reason=record)
    try:
        if fault := files_fault(directory, record, digests=True):
            return replace(unit, reason=fault)
        table = read_rows(directory, [*_QUESTIONS, *_NUMBERS])
        doc_ids, scores = (np.array(table[name].to_numpy(), np.float64) for name in ("doc_id", "score"))
        summary = dict(json.loads((directory / "summary.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        return replace(unit, reason=f"unreadable ({type(error).__name__})")
    n_expected = entry.n_expected or summary.get("n_expected")
    status, reason = _judge(n_expected, doc_ids, scores, are_shares)
    numbers = table.select([name for name in table.column_names if name in _NO_ROWS.column_names])
    return UnitResult(
        entry, status, reason, len(table), n_expected, record, summary, _questions(table), directory, numbers
    )


def read_rows(directory: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a unit's samples, by doc_id."""
    # From bytes: pyarrow opens a path more slowly than it reads so small a file.
    source = pa.BufferReader((directory / "rows.parquet").read_bytes())
    return pq.ParquetFile(source).read(columns=columns, use_threads=False).sort_by("doc_id")


def _questions(table: pa.Table) -> str:
    """Where nothing may be cut, also which texts were read, by the digests of their token ids."""
    digest, may_be_cut = hashlib.sha256(), table["untruncated_tokens"].null_count < len(table)
    for name in _QUESTIONS[:-1] if may_be_cut else _QUESTIONS:
        digest.update("\x1f".join(map(str, table[name].to_pylist())).encode())
    return digest.hexdigest()


def _judge(n_expected: int | None, doc_ids: Floats, scores: Floats, are_shares: bool) -> tuple[UnitStatus, str]:
    n = len(scores)
    if np.any(doc_ids[1:] == doc_ids[:-1]):
        return "refused", "the same sample appears twice"
    if n_expected is not None and n > n_expected:
        return "refused", f"{n} samples where {n_expected} were asked for"
    if not np.all(np.isfinite(scores)):
        return "refused", f"{int(np.sum(~np.isfinite(scores)))} of {n} samples have no score"
    if are_shares and (beyond := int(np.sum((scores < 0) | (scores > 1)))):
        return "refused", f"{beyond} of {n} samples have a score that is not between 0 and 1"
    if n == 0 or (n_expected is not None and n < n_expected):
        return "partial", f"{n} of {n_expected or 'all'} samples"
    return "complete", ""
