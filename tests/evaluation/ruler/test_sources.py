"""Sources: order and joining of essays, schemas, and errors that name file and field."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.tasks import (
    TASKS,
    AdjectiveNouns,
    Sources,
    haystack_words,
    needle_keys,
    questions,
    sentences,
    single_words,
    source_files,
)


def test_essays_are_read_sorted_and_joined_without_separator(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second  text")
    (tmp_path / "a.txt").write_text("first\nend")
    assert haystack_words(tmp_path) == ("first", "endsecond", "text")


def test_files_of_a_task_are_its_raw_inputs(sources: Sources) -> None:
    assert [file.name for file in source_files(TASKS["niah_single_2"], sources)] == ["a.txt", "b.txt"]
    assert source_files(TASKS["niah_single_1"], sources) == source_files(TASKS["cwe"], sources) == []
    assert source_files(TASKS["qa_2"], sources) == [sources["hotpotqa"]]
    assert all(file.exists() for task in TASKS.values() for file in source_files(task, {}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("squad", {"version": "v2.0"}, "ruler.squad: .*field 'data'"),
        ("squad", {"data": [{"paragraphs": [{"qas": []}]}]}, "ruler.squad: .*field 'context'"),
        ("hotpotqa", [{"context": [["t", ["s"]]], "answer": "x"}], "ruler.hotpotqa: .*field 'question'"),
        ("hotpotqa", {"data": []}, "ruler.hotpotqa: .*schema"),
    ],
)
def test_malformed_questions_name_file_and_field(name: str, content: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        questions(name, path)  # type: ignore[arg-type]


def test_missing_and_unreadable_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"ruler.squad: .*nowhere.json does not exist; fetch it \(`tokenweight data fetch squad`\)"
    ):
        questions("squad", tmp_path / "nowhere.json")
    with pytest.raises(UserError, match=r"ruler.qa|ruler.squad"):
        source_files(TASKS["qa_1"], {"squad": tmp_path / "nowhere.json"})
    with pytest.raises(
        UserError, match=r"ruler.haystack: .* does not exist; fetch the essays \(`tokenweight data fetch essays`\)"
    ):
        haystack_words(tmp_path / "essays")
    with pytest.raises(UserError, match=r"holds no .txt"):
        haystack_words(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match=r"latin.txt, line 1: not UTF-8 \(byte 0xe9\)"):
        haystack_words(tmp_path)
    (tmp_path / "essays.json").write_text("{}")
    with pytest.raises(UserError, match=r"no field `text`"):
        haystack_words(tmp_path / "essays.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UserError, match=r"broken.json: not JSON"):
        questions("squad", tmp_path / "broken.json")


def test_needle_keys_are_the_sorted_pairs() -> None:
    adjectives = ["old", "old-fashioned", "odd", "older", "a b"]
    nouns = ["tree", "fashioned-x", "ant", "ant"]
    expected = sorted({f"{adjective}-{noun}" for adjective in adjectives for noun in nouns})
    keys = AdjectiveNouns(adjectives, nouns)
    assert [keys[i] for i in range(len(keys))] == expected
    assert len(needle_keys()) == 6_171_620
    assert len(needle_keys("paper-wonderwords-2.2.0")) == 6_175_260


def test_words_of_the_earlier_wonderwords_are_all_of_it() -> None:
    """The digest is of the lists in the package wonderwords 2.2.0: distinct words, sorted, one a line."""
    words = single_words("official-2024-wonderwords-2.2.0")
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    assert (len(words), digest) == (8169, "d6df582c537f9414be7e752dfb9df7939bc5b4943bc7db28d38e74b5ac265ddf")
    assert sorted({*words} - {*single_words()}) == ["abortion", "brocolli", "idiot"]  # pray is a verb as well


def test_sentences_end_where_the_official_splitter_ends_them() -> None:
    text = (
        'Mr. Hale came. "Is it late?" he asked. It was no. 4 of the list... and J. Tulk left at 5 p.m. on foot! '
        'Preface I. In Chancery II. "So," said Mrs. Dale, "you go." (They went.) The end'
    )
    assert sentences(text) == (
        "Mr. Hale came.", '"Is it late?"', "he asked.", "It was no.",
        "4 of the list... and J. Tulk left at 5 p.m. on foot!",
        "Preface I.", "In Chancery II.", '"So," said Mrs. Dale, "you go."', "(They went.)", "The end",
    )  # fmt: skip
    # By the learned counts of capitals; and typographic quotes end none, as until NLTK 3.9.
    assert sentences("A clearness.... Nobility, for Mr. Swallow.") == (
        "A clearness....",
        "Nobility, for Mr.",
        "Swallow.",
    )
    assert sentences("He said “No.” Then he left.") == ("He said “No.” Then he left.",)


SHARED = Path(__file__).parents[4] / "shared" / "data" / "ruler-official-2024.tar.xz"


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data")
def test_sentences_of_32768_tokens_are_those_of_nltk_3_9_1(tmp_path: Path) -> None:
    """The digest is of what NLTK 3.9.1 with its own data cuts the first 24,500 words of the archive's haystack into."""
    with tarfile.open(SHARED) as archive:
        archive.extractall(tmp_path, filter="data")
    words = haystack_words(next(tmp_path.rglob("haystack.json")))[:24_500]
    found = hashlib.sha256("\n".join(sentences(" ".join(words).strip())).encode()).hexdigest()
    assert found == "e4cc81ce29c19dd9a24e70dddfdca5b8dcde41223200223c90bf507217f3c66b"
