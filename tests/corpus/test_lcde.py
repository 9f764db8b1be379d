"""LCDE: long documents more often, domains in proportion, packed at random, every token accounted for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus import packing
from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.packing import lcde
from tokenweight.corpus.sources import documents
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Chunking, Execution, FilesCorpus, HubCorpus, NovelCorpus

CHUNKING = Chunking(long_tokens=101, mixture="lcde", long_document_tokens=50, long_document_factor=5)


def test_long_documents_grow_and_domains_keep_their_shares() -> None:
    rng = np.random.default_rng(0)
    names = np.where(rng.random(4000) < 0.7, "web", "book")
    is_long = rng.random(4000) < np.where(names == "book", 0.4, 0.05)  # drawn without its domain, "book" would grow
    lengths = np.where(is_long, rng.integers(51, 400, 4000), rng.integers(5, 50, 4000))
    drawn = lengths * np.where(is_long, 5, 1)
    book = names == "book"
    assert drawn[book].sum() / drawn.sum() > lengths[book].sum() / lengths.sum() + 0.05
    _, domains = lcde(lengths, names.tolist(), CHUNKING, bos=True, separator=1)
    for shares in domains.values():
        assert shares["share_in_sequences"] == pytest.approx(shares["share"], abs=0.01)
        odds = shares["long_share"] / (1 - shares["long_share"])
        odds_in_sequences = shares["long_share_in_sequences"] / (1 - shares["long_share_in_sequences"])
        assert odds_in_sequences / odds == pytest.approx(5, rel=0.1)
    assert set(domains) == {"web", "book"}


def test_of_enough_tokens_no_document_is_drawn_twice_and_long_ones_five_times_as_often() -> None:
    rng = np.random.default_rng(1)
    names = np.where(rng.random(20_000) < 0.7, "web", "book")
    is_long = rng.random(20_000) < np.where(names == "book", 0.4, 0.05)
    lengths = np.where(is_long, rng.integers(51, 400, 20_000), rng.integers(5, 50, 20_000))
    wanted = CHUNKING.model_copy(update={"sequences": int(lengths.sum()) // 500})
    twice = {}
    for read in ("all", "enough"):
        chunking = wanted.model_copy(update={"read": read})
        segments, domains = lcde(lengths, names.tolist(), chunking, bos=True, separator=0)
        assert segments.sequences == wanted.sequences
        twice[read] = int(segments.length.sum()) - segments.distinct_tokens(lengths)
        for shares in domains.values():
            assert shares["share_in_sequences"] == pytest.approx(shares["share"], abs=0.001)
            odds = shares["long_share"] / (1 - shares["long_share"])
            odds_in_sequences = shares["long_share_in_sequences"] / (1 - shares["long_share_in_sequences"])
            assert odds_in_sequences / odds == pytest.approx(5, rel=0.1)
    assert twice["all"] > 0.05 * lengths.sum() / 5
    assert twice["enough"] == 0


def test_one_domain_without_long_documents_is_packed_once_each() -> None:
    lengths = np.full(50, 20)
    segments, _ = lcde(lengths, [""] * 50, CHUNKING, bos=True, separator=1)
    assert segments.sequences == 50 * 21 // 100
    used = np.bincount(segments.document, segments.length, 50)
    assert used.max() == 20


def drawn(lengths: list[int], domains: list[str], **chunking: object) -> tuple[np.ndarray, np.ndarray]:
    """In sequences of one token, so that nothing is cut away: the document of each token, and tokens by document."""
    settings = CHUNKING.model_copy(update={"long_tokens": 2, **chunking})
    segments, _ = lcde(np.array(lengths), domains, settings, bos=True, separator=0)
    return segments.document, np.bincount(segments.document, segments.length, len(lengths))


def test_a_document_of_just_the_border_is_not_a_long_one() -> None:
    lengths, half = [50] * 40 + [51] * 40, 40 * 50 + 40 * 51
    _, tokens = drawn(lengths, [""] * 80, seed=3)
    assert tokens.sum() == half
    assert tokens[:40].max() <= 50
    assert tokens[40:].max() > 51, "drawn again"
    assert tokens[40:].sum() > 3 * tokens[:40].sum()


def test_a_domain_gives_its_share_of_tokens_as_it_was_before_upsampling_and_no_token_more() -> None:
    lengths, domains = [10] * 30 + [70] * 10 + [10] * 100, ["book"] * 40 + ["web"] * 100
    for sequences, book in ((None, 1000), (500, 250)):
        _, tokens = drawn(lengths, domains, sequences=sequences)
        assert (tokens[:40].sum(), tokens[40:].sum()) == (book, (sequences or 2000) - book)


def test_the_domains_quotas_add_up_to_what_is_wanted() -> None:
    """Three thirds of 100, each rounded alone, are 99 tokens: the last sequence would be left out."""
    lengths, domains = [10] * 60, ["a", "b", "c"] * 20
    for sequences in (100, 101):
        document, tokens = drawn(lengths, domains, sequences=sequences)
        assert len(document) == sequences
        assert {int(tokens[n::3].sum()) for n in range(3)} <= {33, 34}


def test_halves_are_rounded_up_and_of_nothing_the_share_is_none() -> None:
    assert packing._in_proportion(np.array([0.5, 0.5]), 3).tolist() == [2, 1]
    assert packing._in_proportion(np.array([0.4, 0.6]), 1).tolist() == [0, 1]
    nothing = np.zeros(1, np.int64)
    assert (packing._ratio(nothing, nothing), packing._ratio(nothing, nothing + 2)) == (0, 0)
    assert packing._ratio(nothing + 2, nothing + 3) == 0.6667


def test_documents_of_all_domains_come_in_one_random_order() -> None:
    lengths, domains = [10] * 200, ["book"] * 100 + ["web"] * 100
    order, _ = drawn(lengths, domains)
    other, _ = drawn(lengths, domains, seed=1)
    changes = np.count_nonzero(np.diff(order >= 100))
    assert 60 < changes < 140, "put together domain by domain it would change once"
    assert order.tolist() != other.tolist()
    assert sorted(order.tolist()) == sorted(other.tolist())


def test_a_corpus_of_empty_documents_has_no_sequence() -> None:
    segments, domains = lcde(np.zeros(0, np.int64), [], CHUNKING, bos=True, separator=1)
    assert (segments.sequences, domains) == (0, {})


def test_more_sequences_than_the_mixture_can_give() -> None:
    with pytest.raises(UserError, match=r"chunking.sequences: 900 sequences of 101 tokens need 90000 tokens"):
        lcde(np.full(50, 20), [""] * 50, CHUNKING.model_copy(update={"sequences": 900}), bos=True, separator=1)


@pytest.mark.parametrize("sequences", [None, 12])
def test_the_novel_as_a_mixture(tmp_path: Path, shipped: Encoder, sequences: int | None) -> None:
    corpus = NovelCorpus(documents=3, document_tokens=6000)
    chunking = Chunking(long_tokens=1024, mixture="lcde", long_document_tokens=1024, sequences=sequences)
    stage = Chunk(corpus=corpus, chunking=chunking, short_tokens=256)
    accounting = stage.run({"tokenizer": smoke_base_dir()}, tmp_path, Execution(), no_progress)
    tokens, kinds = np.load(tmp_path / "tokens.npy"), np.load(tmp_path / "kinds.npy")
    index = pq.read_table(tmp_path / "sequences.parquet").to_pylist()
    encoded = {document.id: shipped.encode(document) for document in documents(corpus, "train")}
    covered = np.zeros(tokens.shape, bool)
    seen: dict[str, set[int]] = {}
    for piece in index:
        row, start, length = piece["sequence_id"], piece["start_token"], piece["tokens"]
        place = slice(1 + piece["position"], 1 + piece["position"] + length)
        assert tokens[row, place].tolist() == encoded[piece["document_id"]].tokens[start : start + length].tolist()
        assert not covered[row, place].any()
        covered[row, place] = True
        seen.setdefault(piece["document_id"], set()).update(range(start, start + length))
    assert (tokens[:, 0] == shipped.bos).all()
    assert (tokens[:, 1:][~covered[:, 1:]] == shipped.eos).all()
    assert (kinds[~covered] == 0).all()
    assert accounting["kept"] == sum(map(len, seen.values()))
    assert accounting["kept"] + sum(accounting["dropped"].values()) == accounting["tokens"]
    assert accounting["repeated"] == covered.sum() - accounting["kept"]
    assert accounting["crosses_documents"]
    assert len(tokens) == (sequences or accounting["sequences"])


def test_reading_stops_where_there_is_enough_and_what_comes_later_changes_nothing(
    tmp_path: Path, no_bos_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 sequences of 10 tokens: 350 to read, which the 30th document of 12 tokens reaches."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    chunking = Chunking(long_tokens=10, mixture="lcde", sequences=7, long_document_tokens=11, read="enough")
    kept = []
    for documents_there, progress in ((1000, list[tuple[object, ...]]()), (30, []), (29, [])):
        place = tmp_path / str(documents_there)
        place.mkdir()
        texts = [" ".join(f"w{(i * 12 + k) % 1000}" for k in range(12)) for i in range(documents_there)]
        pq.write_table(pa.table({"text": texts}), place / "train.parquet")
        corpus = HubCorpus(repo_id=str(place), revision="0" * 40)
        stage = Chunk(corpus=corpus, chunking=chunking)
        out = place / "out"
        facts = stage.run({"tokenizer": no_bos_dir}, out, Execution(), lambda *now, seen=progress: seen.append(now))
        assert json.loads((out / "accounting.json").read_text())["tokens"] == facts["tokens"]
        kept.append((facts["documents"], facts["stopped_reading"], np.load(out / "tokens.npy").tolist()))
        if documents_there == 1000:
            assert facts["remarks"] == ["the first 30 documents are read, 360 tokens: enough to draw from"]
            assert progress[28:31] == [(348, 350, "tokens"), (350, 350, "tokens"), (1, 7, "sequences")]
    first, exact, fewer = kept
    assert first == exact
    assert (first[:2], fewer[:2]) == ((30, True), (29, False))
    directory = FilesCorpus(path=str(tmp_path / "1000" / "train.parquet"), validation_documents=1)
    stage = Chunk(corpus=directory, chunking=chunking)
    facts = stage.run({"tokenizer": no_bos_dir}, tmp_path / "out", Execution(), no_progress)
    assert (facts["documents"], "stopped_reading" in facts) == (999, False), "its files are sorted, not shuffled"


def test_a_directory_with_one_domain(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / f"{i}.txt").write_text(f"A quiet river runs deep, said {i}. " * (5 + 60 * (i % 2)))
    corpus = FilesCorpus(path=str(tmp_path), validation_documents=1)
    stage = Chunk(corpus=corpus, chunking=CHUNKING, short_tokens=50)
    accounting = stage.run({"tokenizer": smoke_base_dir()}, tmp_path / "out", Execution(), no_progress)
    assert accounting["sequences"] > 5
    assert list(accounting["domains"]) == [""]
    assert not (tmp_path / "out" / "kinds.npy").exists()
