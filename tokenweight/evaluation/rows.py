"""Per-sample rows of a unit: `rows.parquet`, written whole or not at all, and a journal until it is complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.errors import StageError
from tokenweight.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_NAME = "rows.parquet"
SUMMARY_NAME = "summary.json"
JOURNAL_NAME = "rows.partial.jsonl"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scored sample. `score` is in 0..1, except metrics `nll`, `pmi`, `abs_pmi` and those of a phrase: nats per token."""

    doc_id: int
    prompt_sha256: str
    n_prompt_tokens: int  # as the model read it, BOS included
    untruncated_tokens: int | None = None  # before anything was cut; None where the benchmark does not cut
    truncated: bool = False
    length_words: int | None = None  # LongBench's own `length` field
    output: str = ""  # the model's raw answer; MMLU: JSON list of the choices' log-likelihoods; PMI: JSON of counts
    filtered: str = ""  # what the metric compared
    reference: str = "[]"  # JSON list of strings
    metric: str
    score: float
    tolerant_score: float | None = None  # BBH: exact match after tolerant extraction
    bos_tokens: int | None = None  # BOS tokens at the prompt's start; None where the tokenizer has no BOS
    left_truncated: bool | None = None  # the question itself lost its beginning (few-shot examples are not meant)
    echoed: bool | None = None  # the output repeats the prompt (samples.echoes)
    special_tokens: int | None = None  # that the prompt spells out behind its BOS, and the model reads as such


def schema() -> pa.Schema:
    """Columns of rows.parquet, in the order of :class:`Row`."""
    import pyarrow as pa

    kinds = {"int": pa.int64(), "str": pa.string(), "bool": pa.bool_(), "float": pa.float64()}
    types = {field.name: str(field.type).partition(" | ") for field in fields(Row)}
    return pa.schema([pa.field(name, kinds[kind], nullable=bool(none)) for name, (kind, none, _) in types.items()])


def sha256_text(text: str) -> str:
    """SHA-256 of UTF-8 text, 64 hex digits: prompts are identified by it and never stored twice."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_ids(ids: Sequence[int] | NDArray[np.integer[Any]]) -> str:
    """SHA-256 of token ids as unsigned 32-bit integers, low byte first."""
    return hashlib.sha256(np.asarray(ids, dtype="<u4").tobytes()).hexdigest()


def write_rows(rows: Iterable[Row], out_dir: Path) -> None:
    """Write `rows.parquet` (ordered by doc_id) complete or not at all."""
    import pyarrow as pa

    ordered = sorted(rows, key=lambda row: row.doc_id)
    write_table(pa.Table.from_pylist([asdict(row) for row in ordered], schema=schema()), out_dir / ROWS_NAME)


def write_table(table: pa.Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    replace_file(path, sink.getvalue().to_pybytes())


def read_rows(out_dir: Path) -> list[Row]:
    """What `write_rows` wrote. StageError: it is unreadable, has other columns, or holds a sample twice."""
    import pyarrow.parquet as pq

    path = out_dir / ROWS_NAME
    try:
        table = pq.read_table(path)
    except Exception as error:
        raise StageError(f"{path}: not a readable Parquet file ({error}); remove it and run again") from error
    if table.schema.names != schema().names:
        raise StageError(f"{path}: columns {table.schema.names}, expected {schema().names}; remove it and run again")
    rows = [Row(**record) for record in table.cast(schema()).to_pylist()]
    if len({row.doc_id for row in rows}) != len(rows):
        raise StageError(f"{path}: a doc_id occurs twice; remove it and run again")
    return rows


def write_unit(rows: Iterable[Row], summary: dict[str, Any], out_dir: Path) -> None:
    """Write `summary.json`, then `rows.parquet`: the unit is complete with the latter, and has no journal any more."""
    replace_file(out_dir / SUMMARY_NAME, json.dumps(summary, indent=2, sort_keys=True) + "\n")
    write_rows(rows, out_dir)
    (out_dir / JOURNAL_NAME).unlink(missing_ok=True)


class Journal:
    """Rows of an unfinished unit, one JSON line each, so that a killed run repeats at most one batch."""

    def __init__(self, out_dir: Path) -> None:
        self.out_dir = out_dir
        self._path = out_dir / JOURNAL_NAME
        self.rows: dict[int, Row] = {}
        self.seconds = 0.0  # that they took, in all runs
        for line in self._path.read_text("utf-8").splitlines() if self._path.exists() else ():
            try:
                seconds, row = json.loads(line)
                self.rows[row["doc_id"]] = Row(**row)
                self.seconds += seconds
            except (ValueError, TypeError):
                continue  # the line that was being written when the run was killed

    def append(self, rows: Sequence[Row], seconds_a_row: float) -> None:
        """Add rows, and the seconds that each took, and flush them to disk."""
        text = "".join(json.dumps([seconds_a_row, asdict(row)]) + "\n" for row in rows)
        with self._path.open("a") as stream:
            # A killed writer may have left half a line: begin on a fresh one.
            stream.write("\n" + text if stream.tell() else text)
        self.rows.update({row.doc_id: row for row in rows})
        self.seconds += seconds_a_row * len(rows)
