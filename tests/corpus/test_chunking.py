"""Chunking: no token skipped, none counted twice, labels at their tokens, errors before any file is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenweight.authors_compat as authors
from tokenweight.assets import smoke_base_dir
from tokenweight.corpus import packing
from tokenweight.corpus.documents import Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds
from tokenweight.corpus.sources import documents
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Chunking, Corpus, Execution, FilesCorpus, NovelCorpus, Parity

NOVEL = NovelCorpus(documents=3, document_tokens=6000, validation_documents=1)


def run(
    corpus: Corpus, out_dir: Path, tokenizer_dir: Path | None = None, parity: Parity = "paper", **chunking: Any
) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    stage = Chunk(corpus=corpus, chunking=Chunking(**chunking), short_tokens=256, parity=parity)
    inputs = {"tokenizer": tokenizer_dir or smoke_base_dir()}
    accounting = stage.run(inputs, out_dir, Execution(), no_progress)
    assert accounting["kept"] + sum(accounting["dropped"].values()) == accounting["tokens"]
    assert json.loads((out_dir / "accounting.json").read_text()) == accounting
    assert not (out_dir / "streams").exists()
    return accounting, np.load(out_dir / "tokens.npy", mmap_mode="r")


@settings(max_examples=100)
@given(st.lists(st.integers(0, 60), max_size=8), st.integers(2, 20), st.booleans())
def test_per_document_plan_skips_no_token(lengths: list[int], long_tokens: int, bos: bool) -> None:
    sizes = np.array(lengths, np.int64)
    segments = packing.per_document(sizes, long_tokens, bos=bos)
    payload = long_tokens - int(bos)
    predicted: dict[int, list[int]] = {}
    for document, start in zip(segments.document.tolist(), segments.start.tolist(), strict=True):
        assert start + payload <= lengths[document]
        predicted.setdefault(document, []).extend(range(start + int(not bos), start + payload))
    for document, places in predicted.items():
        assert places == list(range(int(not bos), places[-1] + 1))
        assert lengths[document] - places[-1] - 1 < long_tokens - 1  # what is left is too short
    assert segments.distinct_tokens(sizes) == sum(len(p) + int(not bos) for p in predicted.values())
    assert set(np.flatnonzero(sizes >= payload).tolist()) == set(predicted)


@settings(max_examples=100)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 12), st.integers(0, 1))
def test_packing_puts_pieces_end_to_end(lengths: list[int], payload: int, separator: int) -> None:
    sizes = np.array(lengths, np.int64)
    segments = packing.packed(np.arange(len(sizes)), sizes, payload, separator)
    stream: list[tuple[int, int] | None] = []
    for document, length in enumerate(lengths):
        stream += [(document, i) for i in range(length)] + [None] * separator
    stream = stream[: len(stream) - separator]
    rows: list[list[tuple[int, int] | None]] = [[None] * payload for _ in range(len(stream) // payload)]
    for row, position, document, start, length in zip(
        segments.sequence, segments.position, segments.document, segments.start, segments.length, strict=True
    ):
        rows[row][position : position + length] = [(int(document), int(start) + i) for i in range(length)]
    assert [place for row in rows for place in row] == stream[: len(rows) * payload]
    assert (segments.length > 0).all()
    assert segments.distinct_tokens(sizes) == sum(place is not None for row in rows for place in row)


def test_sequences_are_the_documents_in_seeded_order(tmp_path: Path, shipped: Encoder) -> None:
    accounting, tokens = run(NOVEL, tmp_path, long_tokens=1024)
    index = pq.read_table(tmp_path / "sequences.parquet").to_pydict()
    encoded = {document.id: shipped.encode(document) for document in documents(NOVEL, "train")}
    assert tokens.dtype == np.uint32
    assert tokens.shape == (accounting["sequences"], 1024)
    assert index["sequence_id"] == list(range(len(tokens)))
    for row, id, start in zip(tokens, index["document_id"], index["start_token"], strict=True):
        assert row[0] == shipped.bos
        assert row[1:].tolist() == encoded[id].tokens[start : start + 1023].tolist()
        assert start % 1023 == 0
    starts = list(zip(index["document_id"], index["start_token"], strict=True))
    assert sorted(starts) != starts
    assert accounting["kept"] == 1023 * len(tokens)
    assert accounting["documents_too_short"] >= 9
    assert accounting["tokens"] == sum(len(e.tokens) for e in encoded.values())


def test_the_novels_labels_stand_at_their_tokens(tmp_path: Path, shipped: Encoder) -> None:
    accounting, tokens = run(NOVEL, tmp_path, long_tokens=1024)
    kinds = np.load(tmp_path / "kinds.npy", mmap_mode="r")
    index = pq.read_table(tmp_path / "sequences.parquet").to_pydict()
    encoded = {document.id: shipped.encode(document) for document in documents(NOVEL, "train")}
    distances = np.load(tmp_path / "distances.npy", mmap_mode="r")
    assert kinds.dtype == np.uint8
    assert (distances.dtype, distances.shape) == (np.uint32, tokens.shape)
    assert kinds.shape == tokens.shape
    for row, id, start in zip(kinds, index["document_id"], index["start_token"], strict=True):
        piece, document = slice(start, start + 1023), encoded[id]
        if document.kinds is None or document.distances is None:  # an exercise without labels
            assert not row.any()
            continue
        expected = resolve_kinds(document.kinds[piece], document.distances[piece], np.arange(1023), 256)
        assert row.tolist() == [Kind.NONE, *expected]
    recalls = np.isin(kinds, (Kind.LONG_RECALL, Kind.SHORT_RECALL))
    assert ((distances > 0) == recalls).all()
    assert ((distances > 256) == (kinds == Kind.LONG_RECALL)).all()
    assert (distances <= np.arange(1024)).all(), "the fact was stated within the sequence"
    assert accounting["kinds"]["long_recall"] > 200
    assert sum(accounting["kinds"].values()) == kinds.size


def test_a_recall_is_short_up_to_the_window_and_a_recall_while_its_source_is_in_the_sequence() -> None:
    kinds = np.full(4, Kind.SHORT_RECALL, np.uint8)
    distances = np.array([8, 9, 20, 21], np.uint32)
    positions = np.array([20, 20, 20, 20])
    resolved = resolve_kinds(kinds, distances, positions, 8)
    assert resolved.tolist() == [Kind.SHORT_RECALL, Kind.LONG_RECALL, Kind.LONG_RECALL, Kind.INTRODUCTION]


def test_same_seed_same_bytes_other_seed_other_order(tmp_path: Path) -> None:
    rows = [
        run(NOVEL, tmp_path / name, long_tokens=1024, seed=seed)[1] for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    assert sorted(map(bytes, rows[0])) == sorted(map(bytes, rows[2]))


def test_without_bos_each_token_is_predicted_once(tmp_path: Path, no_bos_dir: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(f"w{i}" for i in range(25)))
    (tmp_path / "b.txt").write_text("w1 w2")
    corpus = FilesCorpus(path=str(tmp_path), validation_documents=1)
    if next(iter(documents(corpus, "train"))).id != "a.txt":  # the split goes by position: swap the two
        (tmp_path / "b.txt").rename(tmp_path / "0.txt")
    accounting, tokens = run(corpus, tmp_path / "out", no_bos_dir, long_tokens=10)
    assert sorted(tokens.tolist()) == [list(range(10)), list(range(9, 19))]
    assert accounting["kept"] == 19
    assert accounting["dropped"]["remainder"] == 6
    assert accounting["repeated"] == 1


def test_sequences_are_limited_and_the_rest_accounted_for(tmp_path: Path) -> None:
    _, everything = run(NOVEL, tmp_path / "all", long_tokens=1024)
    accounting, some = run(NOVEL, tmp_path / "some", long_tokens=1024, sequences=4)
    assert np.array_equal(some, everything[:4])
    assert accounting["dropped"]["beyond_sequences"] == 1023 * (len(everything) - 4)


def test_no_document_is_long_enough(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no document reaches 20000 tokens \(longest: train-book-\d+, \d+ tokens\)"):
        run(NOVEL, tmp_path, long_tokens=20_000)
    assert not list(tmp_path.iterdir())


def test_fewer_sequences_than_wanted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"chunking.sequences: 500 sequences of 1024 tokens .* gives 1\d; add text"):
        run(NOVEL, tmp_path, long_tokens=1024, sequences=500)


def test_a_bad_file_is_found_before_any_work(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("words " * 50)
    (tmp_path / "z.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"z\.txt, line 1: not UTF-8"):
        run(FilesCorpus(path=str(tmp_path), validation_documents=1), tmp_path / "out", long_tokens=16)
    assert not (tmp_path / "out").exists()


def test_what_a_killed_run_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "tokens").write_bytes(b"half")
    (tmp_path / "tokens.npy").write_bytes(b"half")
    run(NOVEL, tmp_path, long_tokens=1024)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    stage = Chunk(corpus=NOVEL, chunking=Chunking(long_tokens=1024), short_tokens=256)
    stage.run({"tokenizer": smoke_base_dir()}, tmp_path, Execution(), lambda *args: told.append(args))
    assert told[0] == (1, 21, "documents")
    assert (21, 21, "documents") in told
    assert told[-1][0] == told[-1][1]
    assert told[-1][2] == "sequences"


@settings(max_examples=100)
@given(st.lists(st.integers(0, 60), max_size=8), st.integers(2, 20), st.booleans(), st.integers(0, 1))
def test_authors_plan_steps_by_the_whole_length(lengths: list[int], long_tokens: int, bos: bool, skipped: int) -> None:
    """Re-stated: cut what follows the skipped tokens every N tokens, keep the pieces that are full."""
    segments = authors.per_document(np.array(lengths, np.int64), long_tokens, bos=bos, skipped=skipped)
    payload = long_tokens - int(bos)
    expected = [
        (document, start, payload)
        for document, length in enumerate(lengths)
        for start in range(skipped, length, long_tokens)
        if start + payload <= length
    ]
    assert (
        list(zip(segments.document.tolist(), segments.start.tolist(), segments.length.tolist(), strict=True))
        == expected
    )
    assert segments.position.tolist() == [0] * len(expected)
    assert segments.sequence.tolist() == list(range(len(expected)))


def test_authors_chunks_lose_one_token_between_two(tmp_path: Path, shipped: Encoder) -> None:
    accounting, ours = run(NOVEL, tmp_path / "ours", long_tokens=512)
    as_authors, theirs = run(NOVEL, tmp_path / "theirs", parity="authors", long_tokens=512)
    stream = shipped.encode(next(iter(documents(NOVEL, "train")))).tokens
    rows = {name: {tuple(row[1:]) for row in tokens.tolist()} for name, tokens in (("ours", ours), ("theirs", theirs))}
    assert theirs[0, 0] == ours[0, 0] == shipped.bos
    for k in range(3):
        assert tuple(stream[511 * k : 511 * k + 511].tolist()) in rows["ours"]
        assert tuple(stream[512 * k : 512 * k + 511].tolist()) in rows["theirs"]
    assert as_authors["kept"] == as_authors["sequences"] * 511
    assert as_authors["kept"] <= accounting["kept"]


def test_authors_put_bos_before_what_a_tokenizer_without_it_gives(tmp_path: Path) -> None:
    """Phi-2's tokenizer has a BOS and adds none: theirs begins sequences with it and loses each document's first token."""
    directory = tokenizer_with_unused_bos(tmp_path / "tokenizer")
    corpus = tmp_path / "texts"
    corpus.mkdir()
    for i in range(10):
        (corpus / f"{i}.txt").write_text(" ".join(f"w{j}" for j in range(1, 41)))
    files = FilesCorpus(path=str(corpus), validation_documents=1)
    _, ours = run(files, tmp_path / "ours", directory, long_tokens=10)
    _, theirs = run(files, tmp_path / "theirs", directory, parity="authors", long_tokens=10)
    assert sorted({tuple(row) for row in ours.tolist()})[0] == tuple(range(1, 11))
    assert sorted({tuple(row) for row in theirs.tolist()}) == [(999, *range(s, s + 9)) for s in (2, 12, 22, 32)]


def tokenizer_with_unused_bos(directory: Path) -> Path:
    """One token per word `w0` ... `w998`, and a BOS that encoding does not add."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(999)} | {"<bos>": 999}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>"})
    )
    return directory


def test_special_tokens_that_a_text_spells_out_are_counted_and_reported(tmp_path: Path) -> None:
    words = "the old tower by the lake was quiet that evening and nobody came " * 60
    for name, text in (("a", words), ("b", f"{words}<|end_of_text|>{words}<|begin_of_text|>"), ("c", words)):
        (tmp_path / f"{name}.txt").write_text(text)
    stage = Chunk(corpus=FilesCorpus(path=str(tmp_path), validation_documents=1), chunking=Chunking(long_tokens=128))
    facts = stage.run({"tokenizer": smoke_base_dir()}, tmp_path / "out", Execution(), no_progress)
    documents_read = facts["documents"]
    assert facts["remarks"] == [
        f"2 special tokens are spelled out in 1 of {documents_read} documents, and read as such"
    ]
