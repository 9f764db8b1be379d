"""Sources: order and joining of essays, schemas, and errors that name file and field."""

from __future__ import annotations

import json
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
)


def test_essays_are_read_sorted_and_joined_without_separator(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second  text")
    (tmp_path / "a.txt").write_text("first\nend")
    assert haystack_words(tmp_path) == ("first", "endsecond", "text")


def test_files_of_a_task_are_its_raw_inputs(sources: Sources) -> None:
    assert [file.name for file in sources.files(TASKS["niah_single_2"])] == ["a.txt", "b.txt"]
    assert sources.files(TASKS["niah_single_1"]) == sources.files(TASKS["cwe"]) == []
    assert sources.files(TASKS["qa_2"]) == [sources.hotpotqa]
    shipped = Sources()
    assert all(file.exists() for task in TASKS.values() for file in shipped.files(task))


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
        Sources(squad=tmp_path / "nowhere.json").files(TASKS["qa_1"])
    with pytest.raises(
        UserError, match=r"ruler.haystack: .* does not exist; fetch the essays \(`tokenweight data fetch essays`\)"
    ):
        haystack_words(tmp_path / "essays")
    with pytest.raises(UserError, match=r"holds no .txt"):
        haystack_words(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match=r"latin.txt is not UTF-8 \(byte 3\)"):
        haystack_words(tmp_path)
    (tmp_path / "essays.json").write_text("{}")
    with pytest.raises(UserError, match=r"no field `text`"):
        haystack_words(tmp_path / "essays.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot be read as JSON"):
        questions("squad", tmp_path / "broken.json")


def test_needle_keys_are_the_sorted_pairs() -> None:
    adjectives = ["old", "old-fashioned", "odd", "older", "a b"]
    nouns = ["tree", "fashioned-x", "ant", "ant"]
    expected = sorted({f"{adjective}-{noun}" for adjective in adjectives for noun in nouns})
    keys = AdjectiveNouns(adjectives, nouns)
    assert [keys[i] for i in range(len(keys))] == expected
    assert len(needle_keys()) == 6_171_620


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
