"""`tokenweight rescore`: tables of stored outputs, and bad folders and lines by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenweight.cli import app
from tokenweight.errors import UserError
from tokenweight.evaluation.longbench import TASKS
from tokenweight.evaluation.rows import Row, write_rows


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    app(["rescore", *map(str, arguments)], exit_on_error=False, print_error=False)
    return capsys.readouterr().out


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


RIGHT = {"trec": "Date", "passage_retrieval_en": "Paragraph 3", "passage_count": "7"}


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """Two predictions for each task: the right answer, with more behind its line, and a wrong one."""
    for task in TASKS:
        answer = RIGHT.get(task, "return total")
        classes = ["Date", "Place"] if task == "trec" else None
        lines(
            tmp_path / f"{task}.jsonl",
            {"pred": f"{answer}\nA second\u2028line", "answers": [answer], "all_classes": classes, "length": 9},
            {"pred": "none", "answers": [answer], "all_classes": classes, "length": 9},
        )
    return tmp_path


def test_longbench_tasks_categories_and_mean(predictions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(run(capsys, "longbench", predictions, "--json"))
    scores = {name: row["score"] for name, row in content["tasks"].items()}
    assert list(scores) == list(TASKS)
    assert scores["hotpotqa"] == scores["trec"] == scores["passage_count"] == 50
    assert {row["n"] for row in content["tasks"].values()} == {2}
    assert content["categories"]["multi_document_qa"] == 50
    assert content["mean"] == pytest.approx(sum(scores.values()) / 16)
    assert content["missing"] == []
    thudm = json.loads(run(capsys, "longbench", predictions, "--first-line", "thudm", "--json"))
    assert thudm["tasks"]["hotpotqa"]["score"] < 50  # the second line counts
    assert thudm["tasks"]["trec"]["score"] == 50
    (predictions / "trce.jsonl").touch()
    shown = run(capsys, "longbench", predictions)
    assert "no English task, not scored: trce.jsonl" in shown
    assert f"mean of the 16 tasks{content['mean']:>37.2f}" in shown
    assert "published" not in shown


def test_longbench_beside_published_scores(predictions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (predictions / "result.json").write_text(json.dumps({"trec": 50.0, "hotpotqa": 49.5, "lsht": 1.0}))
    rows = json.loads(run(capsys, "longbench", predictions, "--json"))["tasks"]
    assert (rows["trec"]["published"], rows["trec"]["difference"]) == (50.0, 0.0)
    assert rows["hotpotqa"]["difference"] == 0.5
    assert "published" not in rows["lcc"]
    shown = run(capsys, "longbench", predictions)
    assert "1 of 2 equal the published scores to two decimals" in shown
    assert "--first-line thudm" in shown


def test_longbench_without_a_task_has_no_mean_and_all_zero_is_told(
    predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (predictions / "lcc.jsonl").unlink()
    lines(predictions / "musique.jsonl", {"pred": "none", "answers": ["Ashford"], "all_classes": None})
    content = json.loads(run(capsys, "longbench", predictions, "--json"))
    assert (content["mean"], content["missing"]) == (None, ["lcc"])
    assert "code_completion" not in content["categories"]
    shown = run(capsys, "longbench", predictions)
    assert "no mean: lcc missing" in shown
    assert "every prediction scores 0: musique" in shown


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("lcc", '{"pred": "x", "answ', r"lcc.jsonl line 3: is not JSON .* half-written"),
        ("lcc", '{"pred": "x"}', r"lcc.jsonl line 3: has no field 'answers'"),
        ("lcc", '["x"]', r"lcc.jsonl line 3: is no JSON object"),
        ("lcc", '{"pred": null, "answers": ["x"]}', r"lcc.jsonl line 3: pred is no text"),
        ("lcc", '{"pred": "x", "answers": "x"}', r"lcc.jsonl line 3: answers is no list of texts"),
        ("trec", '{"pred": "x", "answers": ["Date"]}', r"trec.jsonl line 3: all_classes is no list"),
        ("passage_retrieval_en", '{"pred": "x", "answers": ["3"]}', r"line 3: an answer does not read 'Paragraph N'"),
    ],
)
def test_longbench_lines_that_cannot_be_scored_are_named(
    task: str, line: str, message: str, predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (predictions / f"{task}.jsonl").open("a") as stream:
        stream.write(line)
    with pytest.raises(UserError, match=message):
        run(capsys, "longbench", predictions)


def test_bad_folders_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for benchmark in ("longbench", "bbh"):
        with pytest.raises(UserError, match="nowhere: is no directory"):
            run(capsys, benchmark, tmp_path / "nowhere")
        with pytest.raises(UserError, match=r"holds no "):
            run(capsys, benchmark, tmp_path)
    lines(tmp_path / "lcc.jsonl", {"pred": "x", "answers": ["x"]})
    (tmp_path / "result.json").write_text("[1]")
    with pytest.raises(UserError, match=r"result.json: is no JSON object of scores"):
        run(capsys, "longbench", tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"pred": "caf\xe9"}\n')
    (tmp_path / "latin.jsonl").rename(tmp_path / "trec.jsonl")
    (tmp_path / "result.json").unlink()
    with pytest.raises(UserError, match=r"trec.jsonl line 1: is not UTF-8"):
        run(capsys, "longbench", tmp_path)


ROW = Row(
    doc_id=0, prompt_sha256="ff", n_prompt_tokens=9, output="", filtered="?", reference='["Yes"]', metric="exact_match",
    score=0.5, tolerant_score=0.5,
)  # fmt: skip


def logged(doc_id: int, output: str, target: str, name: str = "get-answer") -> dict[str, Any]:
    return {"doc_id": doc_id, "target": target, "resps": [[output]], "filtered_resps": ["?"], "filter": name}


def test_bbh_logs_are_scored_strictly_and_tolerantly_and_averaged_over_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    lines(
        folder / "samples_bbh_cot_fewshot_navigate_2026-11-28T10-00-00.000000.jsonl",
        logged(0, "So the answer is Yes.", "Yes"),
        logged(1, "So the answer is Yes", "Yes"),  # strict loses the last letter
        logged(2, "So the answer is No.", "Yes"),
        logged(0, "So the answer is Yes.", "Yes", "none"),  # a second filter's line of the same sample
    )
    lines(
        folder / "samples_bbh_cot_fewshot_tracking_shuffled_objects_three_objects_2026-11-28T10-00-00.000000.jsonl",
        logged(0, "the answer is (A).", "(A)"),
    )
    lines(folder / "samples_mmlu_anatomy_2026-11-28T10-00-00.000000.jsonl", {"doc_id": 0})
    content = json.loads(run(capsys, "bbh", tmp_path, "--json"))["model"]
    assert content["tasks"]["navigate"] == {
        "strict": pytest.approx(100 / 3),
        "tolerant": pytest.approx(200 / 3),
        "n": 3,
    }
    assert content["tasks"]["tracking_shuffled_objects_three_objects"]["n"] == 1
    assert content["micro_average"] == {"strict": pytest.approx(50), "tolerant": pytest.approx(75), "n": 4}
    assert len(content["missing"]) == 25
    assert "micro-average, 2 of 27 tasks" in run(capsys, "bbh", folder)


def test_bbh_logs_are_read_as_lm_eval_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracking = pytest.importorskip("lm_eval.loggers.evaluation_tracker")
    tracker = tracking.EvaluationTracker(output_path=str(tmp_path))
    tracker.general_config_tracker.model_name_sanitized = "some__model"
    tracker.date_id = "2026-11-28T10-00-00.123456"
    sample = {
        **logged(0, "1 + 1 = 2.\nSo the answer is Yes.", "Yes"), "arguments": [("prompt", {"until": ["Q"]})],
        "doc": {"input": "?", "target": "Yes"}, "exact_match": 0.0,
    }  # fmt: skip
    tracker.save_results_samples("bbh_cot_fewshot_navigate", [sample])
    content = json.loads(run(capsys, "bbh", tmp_path, "--json"))
    assert content["some__model"]["tasks"]["navigate"] == {"strict": 100.0, "tolerant": 100.0, "n": 1}


def test_bbh_rows_of_a_store_are_scored_by_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for label, output in (("uniform", "the answer is Yes."), ("frozen-dense", "the answer is no")):
        folder = tmp_path / "evaluate" / f"{label}--bbh-web_of_lies-0a1b2c3d"
        folder.mkdir(parents=True)
        # Stored scores are not looked at: they may be of an older metric.
        write_rows([replace(ROW, output=output)], folder)
    content = json.loads(run(capsys, "bbh", tmp_path, "--json"))
    assert {name: found["micro_average"]["strict"] for name, found in content.items()} == {
        "frozen-dense": 0.0,
        "uniform": 100.0,
    }
    (folder / "rows.parquet").write_text("PAR")
    with pytest.raises(UserError, match=r"rows.parquet: not a readable Parquet file"):
        run(capsys, "bbh", tmp_path)


def test_bbh_outputs_that_cannot_be_scored_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "samples_bbh_navigate_2026-11-28.jsonl"
    lines(log, logged(0, "x", "Yes"), logged(0, "x", "Yes"))
    with pytest.raises(UserError, match=r"line 2: sample 0 is there twice"):
        run(capsys, "bbh", tmp_path)
    lines(log, logged(0, "x", "Yes"), {"doc_id": 1, "target": "Yes", "resps": [[[-1.5, False]]]})
    with pytest.raises(UserError, match=r"line 2: resps holds no text"):
        run(capsys, "bbh", tmp_path)
    log.write_text(json.dumps(logged(0, "x", "Yes")) + '\n{"doc_')
    with pytest.raises(UserError, match=r"line 2: is not JSON"):
        run(capsys, "bbh", tmp_path)
    lines(log, logged(0, "x", "Yes"))
    lines(tmp_path / "samples_bbh_navigate_2026-11-29.jsonl", logged(0, "x", "Yes"))
    with pytest.raises(UserError, match=r"both hold navigate"):
        run(capsys, "bbh", tmp_path)
    log.write_text("")
    (tmp_path / "samples_bbh_navigate_2026-11-29.jsonl").unlink()
    with pytest.raises(UserError, match=r"holds no sample"):
        run(capsys, "bbh", tmp_path)
