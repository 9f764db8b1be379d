"""Mixtures: shares of the sequences, each part cut in its own way, every token accounted for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from tokenweight.corpus import documents as documents_module
from tokenweight.corpus import novel
from tokenweight.corpus.documents import Document
from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.novel import books, short_pieces
from tokenweight.corpus.sources import document_count, documents
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Chunking, Corpus, EchoCorpus, Execution, FilesCorpus, MixtureCorpus, MixturePart


def run(corpus: Corpus, out_dir: Path, tokenizer_dir: Path, **chunking: Any) -> tuple[dict[str, Any], NDArray[Any]]:
    stage = Chunk(corpus=corpus, chunking=Chunking(**chunking), short_tokens=4)
    accounting = stage.run({"tokenizer": tokenizer_dir}, out_dir, Execution(), no_progress)
    return accounting, np.load(out_dir / "tokens.npy")


@pytest.fixture
def two_parts(tmp_path: Path) -> tuple[FilesCorpus, FilesCorpus]:
    """Three texts of 100 words w0 to w99, and nine of 7 words from w500 on; one text more in each is kept back."""
    long, short = tmp_path / "long", tmp_path / "short"
    long.mkdir()
    short.mkdir()
    for i in range(4):
        (long / f"{i}.txt").write_text(" ".join(f"w{j}" for j in range(100)))
    for i in range(10):
        (short / f"{i}.txt").write_text(" ".join(f"w{500 + 7 * i + j}" for j in range(7)))
    one, other = (FilesCorpus(path=str(path), validation_documents=1) for path in (long, short))
    return one, other


def mixture(parts: tuple[FilesCorpus, FilesCorpus], share: float, packed: bool = True) -> MixtureCorpus:
    return MixtureCorpus(
        parts=(MixturePart(corpus=parts[0], share=share), MixturePart(corpus=parts[1], share=1 - share, packed=packed))
    )


def test_each_part_has_its_share_and_is_cut_in_its_own_way(
    tmp_path: Path, no_bos_dir: Path, two_parts: tuple[FilesCorpus, FilesCorpus]
) -> None:
    accounting, rows = run(mixture(two_parts, 0.75), tmp_path / "out", no_bos_dir, long_tokens=10, sequences=12)
    of_long = rows[:, 0] < 500
    assert (rows.shape, of_long.sum()) == ((12, 10), 9)
    assert all(row.tolist() == list(range(row[0], row[0] + 10)) for row in rows[of_long]), "one document each"
    assert all((row >= 500).all() for row in rows[~of_long]), "no row is of both parts"
    assert any(abs(np.diff(row.astype(int))).max() > 1 for row in rows[~of_long]), "documents end to end"
    assert accounting["parts"] == [
        {"share": 0.75, "available": 33, "sequences": 9},
        {"share": 0.25, "available": 6, "sequences": 3},
    ]
    assert accounting["kept"] + sum(accounting["dropped"].values()) == accounting["tokens"] == 363


def test_without_a_number_the_scarcest_part_decides(
    tmp_path: Path, no_bos_dir: Path, two_parts: tuple[FilesCorpus, FilesCorpus]
) -> None:
    accounting, _ = run(mixture(two_parts, 0.5), tmp_path / "out", no_bos_dir, long_tokens=10)
    assert [part["sequences"] for part in accounting["parts"]] == [6, 6]


def test_the_seed_decides_and_nothing_else(
    tmp_path: Path, no_bos_dir: Path, two_parts: tuple[FilesCorpus, FilesCorpus]
) -> None:
    corpus = mixture(two_parts, 0.5)
    one, same, other = (
        run(corpus, tmp_path / name, no_bos_dir, long_tokens=10, seed=seed)[1].tolist()
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one == same
    assert one != other


def test_a_part_that_is_too_small_is_named(
    tmp_path: Path, no_bos_dir: Path, two_parts: tuple[FilesCorpus, FilesCorpus]
) -> None:
    with pytest.raises(UserError, match=r"corpus.parts.1: gives 6 sequences of 10 tokens, its share of 0.5 needs 20"):
        run(mixture(two_parts, 0.5), tmp_path / "a", no_bos_dir, long_tokens=10, sequences=40)
    with pytest.raises(UserError, match=r"corpus.parts.1: gives 0 sequences"):
        run(mixture(two_parts, 0.5, packed=False), tmp_path / "b", no_bos_dir, long_tokens=10)
    with pytest.raises(UserError, match=r"chunking\.mixture: lcde draws from a single corpus"):
        run(mixture(two_parts, 0.5), tmp_path / "c", no_bos_dir, long_tokens=10, mixture="lcde")


def test_shares_must_add_up(two_parts: tuple[FilesCorpus, FilesCorpus]) -> None:
    parts = tuple(MixturePart(corpus=part, share=0.4) for part in two_parts)
    with pytest.raises(ValidationError, match=r"their shares add up to 0\.8, not to 1"):
        MixtureCorpus(parts=parts)


def test_what_is_kept_back_of_each_part_is_kept_back_of_the_whole(two_parts: tuple[FilesCorpus, FilesCorpus]) -> None:
    corpus = mixture(two_parts, 0.5)
    assert (document_count(corpus, "train"), document_count(corpus, "validation")) == (12, 2)
    kept_back = [document.text for document in documents(corpus, "validation")]
    assert kept_back == [document.text for part in two_parts for document in documents(part, "validation")]


def test_an_echo_says_the_same_again() -> None:
    corpus = EchoCorpus(seed=3, documents=40, document_tokens=300)
    found = list(documents(corpus, "train"))
    assert found == list(documents(corpus, "train"))
    assert len({document.text for document in found}) == 40
    passages = [len(document.text) // document.text.count(document.text[:20]) for document in found]
    assert min(passages) < 60
    assert max(passages) > 200
    for document, characters in zip(found, passages, strict=True):
        assert document.text == document.text[:characters] * (len(document.text) // characters)
    assert {d.text for d in documents(corpus, "validation")}.isdisjoint(d.text for d in found)


def test_many_documents_are_made_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        document.text for document in novel.echoes(EchoCorpus(seed=1, documents=5, document_tokens=50), "train")
    ]
    monkeypatch.setattr(documents_module, "MANY", 2)
    made = documents_module.in_order(_nth, 5, workers=2)
    assert [document.text for document in made] == expected


def test_few_documents_or_one_core_need_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "MANY", 3)
    monkeypatch.setattr(documents_module, "ProcessPoolExecutor", lambda *_, **__: pytest.fail("a pool"))
    for count, workers in ((2, 2), (3, 1)):
        made = documents_module.in_order(lambda i: Document(str(i), ""), count, workers)
        assert [document.id for document in made] == ["0", "1", "2"][:count]
    with pytest.raises(pytest.fail.Exception, match="a pool"):
        list(documents_module.in_order(_nth, 3, workers=2))


@pytest.mark.slow
def test_the_makers_end_with_who_asked_for_them(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(
        "import time\n"
        "from tokenweight.corpus import documents\n"
        "def nth(i):\n"
        "    print('made', flush=True)\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    documents.MANY = 2\n"
        "    list(documents.in_order(nth, 4, workers=2))\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "made\n"
        makers = psutil.Process(asking.pid).children(recursive=True)
        assert makers
        asking.kill()
        _, alive = psutil.wait_procs(makers, timeout=120)
    assert not alive


def _nth(i: int) -> Document:
    return list(novel.echoes(EchoCorpus(seed=1, documents=5, document_tokens=50), "train"))[i]


def test_tokens_of_texts_together_are_those_of_each(shipped: Encoder) -> None:
    texts = [
        *short_pieces(4, "train", 12),
        *books(4, "train", 1, 3000),
        *short_pieces(4, "train", 3),
    ]
    together = list(shipped.encode_all(texts))
    assert [document.id for document, _ in together] == [document.id for document in texts]
    for document, encoded in together:
        assert encoded.tokens.tolist() == shipped.encode(document).tokens.tolist()
        assert encoded.kinds is None
