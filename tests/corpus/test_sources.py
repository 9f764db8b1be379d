"""Files and hub data as documents, and one clear line for each way in which they can be wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenweight.corpus.files import list_files
from tokenweight.corpus.sources import check, document_count, documents, file_parts, left_out
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Chunking, FilesCorpus, HubCorpus, MixtureCorpus, MixturePart, NovelCorpus


def files(path: Path, validation: int = 1) -> FilesCorpus:
    return FilesCorpus(path=str(path), validation_documents=validation)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Seven documents in three formats and two folders, beside files that are none."""
    (tmp_path / "novels").mkdir()
    (tmp_path / "novels" / "b.txt").write_bytes("﻿Second\r\nbook\rends é".encode())
    (tmp_path / "a.txt").write_text("First book")
    (tmp_path / "notes.jsonl").write_text(
        "\n".join([json.dumps({"text": "one\r\nline"}), "", json.dumps({"text": "two", "more": 1})]) + "\n"
    )
    pq.write_table(pa.table({"text": ["p", "q", "r"], "n": [1, 2, 3]}), tmp_path / "novels" / "c.parquet")
    (tmp_path / "manifest.tsv").write_text("ignored")
    (tmp_path / ".hidden.txt").write_bytes(b"\xff")
    return tmp_path


def test_all_formats_in_sorted_order(library: Path) -> None:
    assert [path.name for path in list_files(files(library))] == [
        "a.txt",
        "notes.jsonl",
        "b.txt",
        "c.parquet",
    ]
    check(files(library))
    everything = [d for split in ("train", "validation") for d in documents(files(library), split)]  # type: ignore[arg-type]
    assert {d.id: (d.text, d.domain) for d in everything} == {
        "a.txt": ("First book", ""),
        "notes.jsonl:1": ("one\nline", ""),
        "notes.jsonl:3": ("two", ""),
        "novels/b.txt": ("Second\nbook\nends é", "novels"),
        "novels/c.parquet:1": ("p", "novels"),
        "novels/c.parquet:2": ("q", "novels"),
        "novels/c.parquet:3": ("r", "novels"),
    }


def test_packed_lines_and_capitals_are_read_and_what_is_not_is_named(library: Path, tmp_path_factory: Any) -> None:
    lines = "".join(json.dumps({"text": f"packed {number}"}) + "\n" for number in range(3)).encode()
    (library / "d.jsonl.gz").write_bytes(gzip.compress(lines))
    with pa.CompressedOutputStream(str(library / "e.jsonl.zst"), "zstd") as packed:
        packed.write(lines)
    (library / "F.TXT").write_text("loud")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "g.txt").write_text("not followed")
    (library / "linked").symlink_to(elsewhere)
    found = [d.id for split in ("train", "validation") for d in documents(files(library), split)]  # type: ignore[arg-type]
    assert {"F.TXT", *(f"{name}:{line}" for name in ("d.jsonl.gz", "e.jsonl.zst") for line in (1, 2, 3))} < set(found)
    assert len(found) == 14
    assert left_out(files(library)) == ["linked", "manifest.tsv"]
    (library / "e.jsonl.zst").write_bytes(b"(\xb5/\xfd")
    with pytest.raises(UserError, match=r"e\.jsonl\.zst: cannot be read"):
        check(files(library))


def test_half_characters_and_rows_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": "half \\ud83d"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: \\ud83d is half of a surrogate pair"):
        check(files(tmp_path))
    (tmp_path / "a.jsonl").unlink()
    raw = pa.array([b"fine", b"caf\xe9 "])
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 2, raw.buffers())}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet, row 2: not UTF-8"):
        check(files(tmp_path))


def test_splits_are_disjoint_and_stay(library: Path) -> None:
    corpus = files(library, 3)
    train = [d.id for d in documents(corpus, "train")]
    validation = [d.id for d in documents(corpus, "validation")]
    assert len(train) == document_count(corpus, "train") == 4
    assert len(validation) == document_count(corpus, "validation") == 3
    assert not set(train) & set(validation)
    assert [d.id for d in documents(corpus, "train")] == train


def test_a_single_file_is_a_corpus(library: Path) -> None:
    corpus = files(library / "notes.jsonl")
    assert {d.id for split in ("train", "validation") for d in documents(corpus, split)} == {  # type: ignore[arg-type]
        "notes.jsonl:1",
        "notes.jsonl:3",
    }


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", b"one\ntwo \xff\n", r"x\.txt, line 2: not UTF-8 \(byte 0xff\)"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', r"x\.jsonl, line 2: not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n\n{"txt": "b"}\n', r"x\.jsonl, line 3: no string in field `text`"),
        ("x.jsonl", b'{"text": 5}\n', r"x\.jsonl, line 1: no string in field `text`"),
        ("x.jsonl", b'{"text": "a"}\nnot json\n', r"x\.jsonl, line 2: not JSON"),
        ("x.txt", b"\n\xff", r"x\.txt, line 2: not UTF-8"),
        ("x.txt", b"\0one", r"x\.txt: character 0 is NUL"),
        ("x.txt", b"o\0n\0e\0", r"x\.txt: character 1 is NUL, which text cannot have"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "ab\\u0000"}\n', r"x\.jsonl, line 2: character 2 is NUL"),
        ("x.txt", b"", r"x\.txt: the file is empty"),
        ("x.jsonl", b"", r"x\.jsonl: the file is empty"),
        ("x.parquet", b"", r"x\.parquet: the file is empty"),
        ("x.jsonl", b'{"text": "a", "n": ' + b"9" * 6000 + b"}", r"x\.jsonl, line 1: not JSON"),
        ("x.jsonl", b"[" * 100_000, r"x\.jsonl, line 1: not JSON"),
        ("x.parquet", b"PAR0 no parquet", r"x\.parquet: not a parquet file"),
    ],
)
def test_unreadable_files_are_named_with_their_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "good too.txt").write_text("good")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says) as error:
        check(files(tmp_path))
    assert "\n" not in str(error.value)


def test_a_damaged_page_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good")
    table = pa.table({"text": [f"{i} " * 100 for i in range(2000)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=500, use_dictionary=False)
    data = bytearray((tmp_path / "x.parquet").read_bytes())
    page = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(2).column(0).data_page_offset
    data[page : page + 20] = b"\xff" * 20
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(UserError, match=r"x\.parquet: damaged after row \d+ .*; copy it again") as error:
        check(files(tmp_path))
    assert "\n" not in str(error.value)
    data[-60:-20] = b"\xff" * 40  # the footer, in which pyarrow finds another kind of error
    (tmp_path / "x.parquet").write_bytes(data)
    with pytest.raises(UserError, match=r"x\.parquet: not a parquet file \(.*; write it again"):
        check(files(tmp_path))


def test_a_page_whose_bytes_changed_is_seen_by_its_checksum(tmp_path: Path) -> None:
    table = pa.table({"text": [f"{i:04d} a quiet river" for i in range(200)]})
    how = {"compression": "none", "use_dictionary": False, "write_page_checksum": True, "row_group_size": 100}
    pq.write_table(table, tmp_path / "x.parquet", **how)
    data = (tmp_path / "x.parquet").read_bytes()
    check(files(tmp_path))
    (tmp_path / "x.parquet").write_bytes(data.replace(b"0150 a quiet", b"0150 a quick"))
    with pytest.raises(UserError, match=r"x\.parquet: damaged after row 64 \("):
        check(files(tmp_path))


def test_parquet_without_the_field(tmp_path: Path) -> None:
    pq.write_table(pa.table({"story": ["p", "q"]}), tmp_path / "c.parquet")
    with pytest.raises(UserError, match=r"c\.parquet: no column `text` \(it has story\)"):
        check(files(tmp_path))
    pq.write_table(pa.table({"text": ["p", None]}), tmp_path / "c.parquet")
    with pytest.raises(UserError, match=r"c\.parquet, row 2: no string"):
        check(files(tmp_path))


def test_missing_empty_and_wrong_directories(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        list_files(files(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="is empty"):
        list_files(files(tmp_path))
    (tmp_path / "book.pdf").write_bytes(b"%PDF")
    with pytest.raises(
        UserError,
        match=r"holds only \.pdf; give a directory of \.txt, \.jsonl, .* files",
    ):
        list_files(files(tmp_path))
    with pytest.raises(UserError, match=r"holds only \.pdf"):
        list_files(files(tmp_path / "book.pdf"))


def test_a_list_of_digests_is_no_corpus_to_read(tmp_path: Path) -> None:
    (tmp_path / "books.sha256").write_text(f"{'0' * 64}  a.txt\n")
    for read in (check, lambda corpus: list(documents(corpus, "train"))):
        with pytest.raises(UserError, match="has only digests"):
            read(files(tmp_path / "books.sha256"))


def test_too_few_documents(library: Path) -> None:
    with pytest.raises(UserError, match="has 7 documents, which leaves none to train on beside 7 for validation"):
        list(documents(files(library, 7), "train"))
    assert len(list(documents(files(library, 8), "validation"))) == 7  # where nobody trains, few are read all


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A data set in the hub's layout of parquet files, one per split."""
    (tmp_path / "data").mkdir()
    for split, texts in (("train", ["a\r\nb", "c"]), ("validation", ["d"])):
        meta = [{"set": "Book"}] * len(texts)
        pq.write_table(pa.table({"text": texts, "meta": meta}), tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def test_hub_data_from_a_directory_in_its_layout(repository: Path) -> None:
    corpus = HubCorpus(repo_id=str(repository), revision="0" * 40, domain_field="meta.set")
    train = list(documents(corpus, "train"))
    assert [(d.id, d.text, d.domain) for d in train] == [
        ("train:00000000", "a\nb", "Book"),
        ("train:00000001", "c", "Book"),
    ]
    assert [d.text for d in documents(corpus, "validation")] == ["d"]
    assert file_parts(corpus) == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text_field": "story"}, "corpus.text_field: row 0 .* has no string in `story`"),
        ({"domain_field": "meta.name"}, "corpus.domain_field: row 0 .* has no string in `meta.name`"),
        ({"train_split": "training"}, "split training\\) cannot be read"),
    ],
)
def test_wrong_hub_fields(repository: Path, change: dict[str, str], says: str) -> None:
    corpus = HubCorpus(repo_id=str(repository), revision="0" * 40).model_copy(update=change)
    with pytest.raises(UserError, match=says):
        list(documents(corpus, "train"))


def test_hub_out_of_reach_names_repository_and_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # else the client tries again for 20 s
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    corpus = HubCorpus(repo_id="emozilla/pg19", revision="0" * 40)
    with pytest.raises(UserError, match=r"emozilla/pg19 \(revision 0{40}, split train\) cannot be read") as error:
        list(documents(corpus, "train"))
    assert "hf download emozilla/pg19 --repo-type dataset --revision" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("message", "said"), [("the first\nthe second", "the first"), ("", "ValueError")])
def test_a_corpus_of_the_hub_is_streamed_at_its_revision(
    message: str, said: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    asked: list[tuple[Any, Any]] = []

    def refuse(*which: Any, **how: Any) -> None:
        asked.append((which, how))
        raise ValueError(message)

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    for name, revision, subset in (("a/b", "1" * 40, "en"), (str(repository), None, None)):
        corpus = HubCorpus(repo_id=name, revision="1" * 40, subset=subset)
        at = ", subset en" if subset else ""
        with pytest.raises(
            UserError, match=rf"\(revision 1{{40}}{at}, split train\) cannot be read: {said}; go online"
        ):
            list(documents(corpus, "train"))
        assert asked.pop() == ((name, subset), {"split": "train", "streaming": True, "revision": revision})
        assert document_count(corpus, "train") == 0, "nobody knows"


def test_artifacts_are_called_after_their_corpus() -> None:
    hub, novel = HubCorpus(repo_id="emozilla/pg19", revision="0" * 40), NovelCorpus(seed=2)
    mixture = MixtureCorpus(parts=(MixturePart(corpus=hub, share=0.5), MixturePart(corpus=novel, share=0.5)))
    labels = [Chunk(corpus=one, chunking=Chunking(long_tokens=64)).label({}) for one in (hub, novel, mixture)]
    assert labels == ["pg19-64", "novel2-64", "mixture-pg19-novel2-64"]


def test_no_validation_split() -> None:
    with pytest.raises(UserError, match=r"corpus\.validation_split"):
        documents(HubCorpus(repo_id="x/y", revision="0" * 40, validation_split=None), "validation")
