"""LongBench's metrics, first-line rules, and parity with the published scores."""

from __future__ import annotations

import json
import tarfile
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.evaluation import longbench as metrics
from tokenweight.evaluation.longbench import TASKS, score_longbench
from tokenweight.evaluation.rescoring import rescore


def test_qa_f1_normalises_case_punctuation_and_articles() -> None:
    assert metrics.qa_f1("The Eiffel-Tower!", "eiffeltower") == 1.0
    assert metrics.qa_f1("in the town of Ashford", "Ashford") == pytest.approx(2 * (1 / 4) / (1 + 1 / 4))
    assert metrics.qa_f1("", "x") == metrics.qa_f1("no", "yes") == 0.0


def test_rouge_l_is_zero_where_the_package_refuses() -> None:
    assert metrics.rouge_l("the cat sat", "the cat sat") == pytest.approx(1.0)
    assert metrics.rouge_l("", "the cat") == 0.0
    assert metrics.rouge_l(". .", "the cat") == 0.0


def test_classification_shares_among_named_classes_as_the_official_loop_does() -> None:
    classes = ["Date", "Other entity", "Entity", "Food"]
    assert metrics.classification("Type: Date", "Date", classes) == 1.0
    assert metrics.classification("Date or Food", "Date", classes) == 0.5
    assert metrics.classification("Food", "Date", classes) == 0.0
    assert metrics.classification("a letter like a-z", "letter like a-z", ["letter", "letter like a-z"]) == 1.0
    # Removing while walking skips the next class: "bc" stays.
    assert metrics.classification("abcd", "abcd", ["ab", "bc", "abcd"]) == 0.5


def test_numbers_are_shared() -> None:
    assert metrics.retrieval("Paragraph 3, not 4", "Paragraph 3") == 0.5
    assert metrics.retrieval("none", "Paragraph 3") == 0.0
    assert metrics.count("7 7 8", "7") == pytest.approx(2 / 3)


def test_code_similarity_takes_the_first_line_that_is_code() -> None:
    assert metrics.code_similarity("\n\n# comment\n```python\nreturn x\nmore", "return x") == 1.0
    assert metrics.code_similarity("\n  \nreturn x", "return x") == 0.2  # only leading line breaks are stripped
    assert metrics.code_similarity("# only comments", "return x") == 0.0


def test_code_similarity_is_fuzzywuzzys_on_difflib(monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz = pytest.importorskip("fuzzywuzzy.fuzz")
    monkeypatch.setattr(fuzz, "SequenceMatcher", SequenceMatcher)
    pairs = [("return total", "return totals"), ("x = 1", "y = 2"), ("a" * 300 + "b", "b" + "a" * 300), ("", "x")]
    for one, other in pairs:
        assert metrics.code_similarity(one, other) == fuzz.ratio(one, other) / 100


def test_first_line_rules() -> None:
    output = "\nAshford\nQuestion: What else?"
    assert score_longbench("hotpotqa", output, ["Ashford"], None, "lceg") == ("Ashford", 1.0)
    filtered, score = score_longbench("hotpotqa", output, ["Ashford"], None, "thudm")
    assert filtered == output
    assert score < 0.5
    both = {name for name, task in TASKS.items() if task.scored_part("a\nb", "thudm") == "a"}
    lceg = {name for name, task in TASKS.items() if task.scored_part("a\nb", "lceg") == "a"}
    assert both == {"trec", "triviaqa", "samsum"}
    assert lceg - both == {
        "narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "passage_count",
        "passage_retrieval_en",
    }  # fmt: skip


def test_best_reference_counts() -> None:
    assert score_longbench("triviaqa", "ashford", ["Dunmoor", "Ashford"], None, "lceg")[1] == 1.0
    assert score_longbench("trec", " Place", ["Place"], ["Place", "Trade"], "lceg")[1] == 1.0


def test_rescore_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory"):
        rescore("longbench", tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no <task>\.jsonl"):
        rescore("longbench", tmp_path)
    (tmp_path / "trec.jsonl").write_text('{"pred": "x", "all_classes": []}\n')
    with pytest.raises(UserError, match=r"trec.jsonl, line 1: has no field 'answers'"):
        rescore("longbench", tmp_path)
    (tmp_path / "trec.jsonl").write_text("not json\n")
    with pytest.raises(UserError, match=r"trec.jsonl, line 1: not JSON"):
        rescore("longbench", tmp_path)


ARCHIVE = Path(__file__).parents[4] / "shared" / "data" / "longbench.tar.xz"
FROZEN = (
    Path(__file__).parents[2] / "golden" / "longbench" / "published-scores.json"
)  # all digits, as published ones have two
LONG_SUMMARIES = ("gov_report", "multi_news")  # ROUGE takes about a minute over the three runs


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ARCHIVE.exists():
        pytest.skip("needs ../shared/data")
    root = tmp_path_factory.mktemp("published")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    return next(root.rglob("published-predictions"))


def _assert_published(run: Path, name: str) -> set[str]:
    expected = json.loads((run / "result.json").read_text())
    (found,) = rescore("longbench", run, first_line="thudm").values()
    tasks = found["tasks"]
    assert {task["difference"] for task in tasks.values()} == {0}
    scores = {name: task["score"] for name, task in tasks.items()}
    frozen = json.loads(FROZEN.read_text())[name]
    digits = {task: frozen[task] for task in scores if task in frozen}
    assert {task: scores[task] for task in digits} == pytest.approx(digits, rel=1e-12)
    assert {name: round(score, 2) for name, score in scores.items()} == {name: expected[name] for name in scores}
    return set(scores)


@pytest.mark.parametrize("run", ["llama2-7b", "llama3-8b-instruct", "qwen3-8b"])
def test_published_scores_are_reproduced(run: str, published: Path, tmp_path: Path) -> None:
    for file in (published / run).iterdir():
        if file.stem not in LONG_SUMMARIES:
            (tmp_path / file.name).symlink_to(file)
    assert _assert_published(tmp_path, run) == set(TASKS) - set(LONG_SUMMARIES)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["llama2-7b", "llama3-8b-instruct", "qwen3-8b"])
def test_published_scores_of_long_summaries_are_reproduced(run: str, published: Path) -> None:
    assert _assert_published(published / run, run) == set(TASKS)
