"""rows.parquet, and the journal of unfinished units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokenweight.errors import StageError
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.rows import Journal, Row, read_rows, write_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.recipes.schema import Evaluation, Execution

ROW = Row(
    doc_id=0, prompt_sha256="a" * 64, n_prompt_tokens=10, untruncated_tokens=None, truncated=False, length_words=None,
    output="seven", filtered="seven", reference='["7"]', metric="string_match_all", score=0.5,
)  # fmt: skip
COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "untruncated_tokens", "truncated", "length_words", "output",
    "filtered", "reference", "metric", "score", "tolerant_score", "bos_tokens", "left_truncated", "echoed", "special_tokens",
]  # fmt: skip


def _rows(scores: list[float], **changes: object) -> list[Row]:
    return [replace(ROW, doc_id=i, score=score, **changes) for i, score in enumerate(scores)]  # type: ignore[arg-type]


def test_rows_round_trip_in_order_of_documents(tmp_path: Path) -> None:
    rows = _rows([0.0, 1.0], tolerant_score=1.0)
    write_rows(reversed(rows), tmp_path)
    assert read_rows(tmp_path) == rows
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.names == COLUMNS
    assert [str(table.schema.field(n).type) for n in ("doc_id", "truncated", "score")] == ["int64", "bool", "double"]
    assert [f.name for f in tmp_path.iterdir()] == ["rows.parquet"]


def test_rows_with_other_columns_are_refused(tmp_path: Path) -> None:
    write_rows(_rows([0.0, 1.0]), tmp_path)
    table = pq.read_table(tmp_path / "rows.parquet")
    pq.write_table(table.drop_columns(["output"]), tmp_path / "rows.parquet")
    with pytest.raises(StageError, match="expected"):
        read_rows(tmp_path)


def test_half_written_or_doubled_rows_are_named(tmp_path: Path) -> None:
    write_rows([ROW, ROW], tmp_path)
    with pytest.raises(StageError, match="a doc_id occurs twice"):
        read_rows(tmp_path)
    (tmp_path / "rows.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:50])
    with pytest.raises(StageError, match="not a readable Parquet file"):
        read_rows(tmp_path)


def test_journal_survives_a_line_cut_short(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(_rows([0.0, 1.0]), 2.5)
    path = tmp_path / "rows.partial.jsonl"
    text = path.read_text()
    path.write_text(text[:-20])
    again = Journal(tmp_path)
    assert (list(again.rows), again.seconds) == ([0], 2.5)
    again.append(_rows([0.0, 1.0])[1:], 1.5)
    assert list(Journal(tmp_path).rows) == [0, 1]


def test_seconds_of_a_run_that_was_cut_count(tmp_path: Path) -> None:
    Journal(tmp_path).append(_rows([0.0, 1.0])[:1], 2.5)
    again = Journal(tmp_path)
    again.append(_rows([0.0, 1.0])[1:], 1.5)
    assert again.seconds == Journal(tmp_path).seconds == 4.0


def test_a_unit_killed_between_its_rows_and_its_journal_has_no_journal(tmp_path: Path) -> None:
    write_rows(_rows([0.0]), tmp_path)
    Journal(tmp_path).append(_rows([0.0]), 1.0)
    run = UnitRun(Unit("perplexity", "validation", 8), (), tmp_path)
    assert list(evaluate_checkpoint(tmp_path, [run], Evaluation.model_construct(), 8, Execution())) == [run.unit]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]
