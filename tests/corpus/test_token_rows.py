"""Rows of token ids that are read as they are: in their order, of one length, every id a token's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenweight.corpus.stages import Chunk
from tokenweight.corpus.token_rows import chunk_rows, row_tokens
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Chunking, FilesCorpus

ROWS = np.arange(70 * 3).reshape(70, 3)


def write(folder: Path, **files: Any) -> FilesCorpus:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        pq.write_table(pa.table({"input_ids": list(rows)}), folder / f"{name}.parquet")
    return FilesCorpus.model_construct(path=str(folder), validation_documents=0)


def chunk(corpus: FilesCorpus, out: Path, long_tokens: int = 3, sequences: int | None = None) -> dict[str, Any]:
    chunking = Chunking(long_tokens=long_tokens, mixture="as_is", sequences=sequences)
    return chunk_rows(Chunk.model_construct(corpus=corpus, chunking=chunking), out, no_progress)


@pytest.mark.parametrize("sequences", [None, 66, 71])
def test_rows_keep_their_order_and_their_names(tmp_path: Path, sequences: int | None) -> None:
    corpus = write(tmp_path / "rows", a=ROWS, b=ROWS[:2] + 500)
    wanted = np.concatenate([ROWS, ROWS[:2] + 500])[:sequences]
    assert row_tokens(corpus) == 3
    account = chunk(corpus, tmp_path, sequences=sequences)
    assert np.load(tmp_path / "tokens.npy").tolist() == wanted.tolist()
    index = pq.read_table(tmp_path / "sequences.parquet").to_pandas()
    names = [*(f"a.parquet:{n}" for n in range(1, 71)), "b.parquet:1", "b.parquet:2"]
    assert index["document_id"].tolist() == names[:sequences]
    assert index["sequence_id"].tolist() == list(range(len(wanted)))
    assert set(index[["start_token", "position", "tokens"]].itertuples(index=False, name=None)) == {(0, 0, 3)}
    assert (account["sequences"], account["tokens"]) == (len(wanted), 3 * len(wanted))


WRONG: dict[str, tuple[list[Any], str]] = {
    "short": ([[1, 2, 3], [1, 2]], r"a\.parquet, row 2: has 2 tokens in `input_ids`, the first row 3"),
    "one": ([[1]], r"row 1: has 1 tokens .* at least two tokens"),
    "null": ([[1, 2, 3], None], "row 2: has 0 tokens"),
    "negative": ([[1, 2, -3]], "a token id is missing, negative or above 32 bits"),
    "missing": ([[1, 2, None]], "a token id is missing"),
    "beyond": ([[1, 2, 2**32]], "above 32 bits"),
    "words": ([["a", "b"]], "no column `input_ids` of lists of token ids"),
    "few": ([[1, 2, 3]], "2 sequences are needed, the corpus has 1 rows"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_rows_that_are_no_sequences(kind: str, tmp_path: Path) -> None:
    rows, message = WRONG[kind]
    corpus = write(tmp_path / "rows", a=rows)
    with pytest.raises(UserError, match=message) as raised:
        chunk(corpus, tmp_path, len(rows[0]), sequences=2 if kind == "few" else None)
    assert "\n" not in str(raised.value)


def test_a_damaged_page_of_ids_is_named(tmp_path: Path) -> None:
    corpus = write(tmp_path / "rows", a=ROWS)
    file = tmp_path / "rows" / "a.parquet"
    data = bytearray(file.read_bytes())
    data[30:60] = b"\xff" * 30
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.parquet: damaged after row 0 .*; copy it again"):
        chunk(corpus, tmp_path)
