"""rows.parquet, the journal of unfinished units, and the flags on implausible results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokenweight.errors import StageError
from tokenweight.evaluation.guards import flags, summary
from tokenweight.evaluation.rows import Journal, Row, read_rows, write_rows

ROW = Row(
    doc_id=0, prompt_sha256="a" * 64, n_prompt_tokens=10, untruncated_tokens=None, truncated=False, length_words=None,
    output="seven", filtered="seven", reference='["7"]', metric="string_match_all", score=0.5,
)  # fmt: skip
COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "untruncated_tokens", "truncated", "length_words", "output",
    "filtered", "reference", "metric", "score", "tolerant_score",
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


def test_half_written_or_doubled_rows_are_named(tmp_path: Path) -> None:
    write_rows([ROW, ROW], tmp_path)
    with pytest.raises(StageError, match="a doc_id appears twice"):
        read_rows(tmp_path)
    (tmp_path / "rows.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:50])
    with pytest.raises(StageError, match="not a readable Parquet file"):
        read_rows(tmp_path)


def test_journal_survives_a_line_cut_short(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(_rows([0.0, 1.0]))
    path = tmp_path / "rows.partial.jsonl"
    path.write_text(path.read_text()[:-20])
    again = Journal(tmp_path)
    assert list(again.rows) == [0]
    again.append(_rows([0.0, 1.0])[1:])
    assert list(Journal(tmp_path).rows) == [0, 1]
    again.keep_only({0: "a" * 64, 1: "b" * 64})
    assert list(again.rows) == [0]


@pytest.mark.parametrize(
    ("rows", "flag"),
    [
        (_rows([0.0] * 8), "all_zero"),
        (_rows([0.5] * 8), "all_equal"),
        (_rows([0.0, 1.0] * 4, output=" \n"), "all_empty"),
        (_rows([0.0, 1.0] * 4, truncated=True), "mostly_truncated"),
        ([], "no_samples"),
        (
            [replace(r, reference=json.dumps([str(r.doc_id)])) for r in _rows([0.0, 1.0] * 4)],
            "one_answer_to_everything",
        ),
    ],
)
def test_flags(rows: list[Row], flag: str) -> None:
    assert flag in flags(rows, "bbh/snarks")


def test_implausible_and_echoed() -> None:
    assert "implausibly_perfect" in flags(_rows([1.0] * 8), "longbench/trec")
    assert "implausibly_perfect" in flags(_rows([1.0] * 8), "ruler/qa_1/4096")
    assert flags(_rows([1.0] * 8), "ruler/vt/4096") == []
    prompt = "Some special magic numbers are hidden within the following text."
    echoed = _rows([0.0, 1.0, 1.0], output=prompt + " 7")
    assert flags(echoed, "ruler/vt/4096", dict.fromkeys(range(3), prompt)) == ["prompt_echoed"]
    assert flags(_rows([0.0, 1.0, 1.0]), "ruler/vt/4096", dict.fromkeys(range(3), prompt)) == []


def test_summary_counts_what_is_missing() -> None:
    told = summary(_rows([0.0, 1.0]), "ruler/vt/4096", n_expected=3, seconds=1.5)
    assert (told["n"], told["n_expected"], told["mean_score"], told["seconds"]) == (2, 3, 0.5, 1.5)
    assert told["flags"] == ["missing_samples"]
