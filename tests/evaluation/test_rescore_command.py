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
from tokenweight.evaluation.ruler.tasks import TASKS as RULER_TASKS


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    app(["rescore", *map(str, arguments)], exit_on_error=False, print_error=False)
    return capsys.readouterr().out


def scored(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What `--json` prints of the only run."""
    (found,) = json.loads(run(capsys, *arguments, "--json")).values()
    return dict(found)


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
    content = scored(capsys, "longbench", predictions)
    scores = {name: row["score"] for name, row in content["tasks"].items()}
    assert list(scores) == list(TASKS)
    assert scores["hotpotqa"] == scores["trec"] == scores["passage_count"] == 50
    assert {row["n"] for row in content["tasks"].values()} == {2}
    assert content["categories"]["multi_document_qa"] == 50
    assert content["mean"] == pytest.approx(sum(scores.values()) / 16)
    assert content["missing"] == []
    thudm = scored(capsys, "longbench", predictions, "--first-line", "thudm")
    assert thudm["tasks"]["hotpotqa"]["score"] < 50  # the second line counts
    assert thudm["tasks"]["trec"]["score"] == 50
    (predictions / "trce.jsonl").touch()
    shown = run(capsys, "longbench", predictions)
    assert "not scored, no task of longbench: trce.jsonl" in shown
    assert f"mean of the 16 tasks{content['mean']:>37.2f}" in shown
    assert "published" not in shown


def test_longbench_beside_published_scores(predictions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (predictions / "result.json").write_text(json.dumps({"trec": 50.0, "hotpotqa": 49.5, "lsht": 1.0}))
    rows = scored(capsys, "longbench", predictions)["tasks"]
    assert (rows["trec"]["published"], rows["trec"]["difference"]) == (50.0, 0.0)
    assert rows["hotpotqa"]["difference"] == 0.5
    assert "published" not in rows["lcc"]
    shown = run(capsys, "longbench", predictions)
    assert "1 of 2 equal the published scores to two decimals" in shown
    assert "--first-line thudm" in shown


def test_longbench_e_by_length_and_lceg_beside_what_they_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(right: str, *lengths: int) -> list[dict[str, Any]]:
        """One right and one wrong prediction of each length."""
        return [{"pred": pred, "answers": [right], "all_classes": ["Date", "Place"], "length": n}
                for n in lengths for pred in (right, "none")]  # fmt: skip

    e, lceg = tmp_path / "pred_e" / "some-model", tmp_path / "pred" / "llama2-7b-hf"
    lines(e / "qasper.jsonl", *rows("Ashford", 100, 3999, 4000, 9000))
    lines(e / "trec_e.jsonl", *rows("Date", 8000))
    by_length = {"0-4k": 50.0, "4-8k": 49.0, "8k+": 50.0}
    (e / "result.json").write_text(json.dumps({"qasper": by_length, "trec": {"0-4k": float("nan"), "8k+": 50.0}}))
    lines(lceg / "hotpotqa.jsonl", *rows("Ashford", 4000, 4001, 20_000))
    lines(lceg / "trec_50shots.jsonl", *rows("Date", 9000))
    (lceg / "result.json").write_text(json.dumps({"hotpotqa": 50.0}))
    detail = {"0-4k": None, "4-8k": 50.0, "4k+": 50.0, "16-32k": 50.0, "#4k+": 4, "total_score": 50.0}
    (lceg / "result_by_length.json").write_text(json.dumps({"hotpotqa": detail}))

    found = json.loads(run(capsys, "longbench", tmp_path, "--json"))
    assert list(found) == ["pred/llama2-7b-hf", "pred_e/some-model"]
    qasper, trec = (found["pred_e/some-model"]["tasks"][task] for task in ("qasper", "trec"))
    assert {label: part["n"] for label, part in qasper["lengths"].items()} == {"0-4k": 4, "4-8k": 2, "8k+": 2}
    assert [part["difference"] for part in qasper["lengths"].values()] == [0, 1, 0]
    assert "published" not in qasper
    assert trec["lengths"] == {"8k+": {"n": 2, "score": 50, "published": 50, "difference": 0}}
    hotpotqa, more_shots = (found["pred/llama2-7b-hf"]["tasks"][task] for task in ("hotpotqa", "trec_50shots"))
    assert {label: part["n"] for label, part in hotpotqa["lengths"].items()} == {"4-8k": 4, "4k+": 4, "16-32k": 2}
    assert (hotpotqa["published"], more_shots["score"], more_shots["category"]) == (50, 50, "few_shot_learning")
    shown = run(capsys, "longbench", e)
    assert "4-8k words                2   50.00      49.00       +1.00" in shown
    assert "3 of 4 equal the published scores" in shown


def test_longbench_without_a_task_has_no_mean_and_all_zero_is_told(
    predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (predictions / "lcc.jsonl").unlink()
    lines(predictions / "musique.jsonl", {"pred": "none", "answers": ["Ashford"], "all_classes": None})
    content = scored(capsys, "longbench", predictions)
    assert (content["mean"], content["missing"]) == (None, ["lcc"])
    assert "code_completion" not in content["categories"]
    shown = run(capsys, "longbench", predictions)
    assert "no mean: lcc missing" in shown
    assert "every prediction scores 0: musique" in shown
    assert content["all_zero"] == ["musique"]


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("lcc", '{"pred": "x", "answ', r"lcc.jsonl, line 3: not JSON .* incomplete"),
        ("lcc", '{"pred": "x"}', r"lcc.jsonl, line 3: has no field 'answers'"),
        ("lcc", '["x"]', r"lcc.jsonl, line 3: is not a JSON object"),
        ("lcc", '{"pred": null, "answers": ["x"]}', r"lcc.jsonl, line 3: pred is not a text"),
        ("lcc", '{"pred": "x", "answers": ["x"], "length": "k"}', r"lcc.jsonl, line 3: length is not a number"),
        ("lcc", '{"pred": "x", "answers": "x"}', r"lcc.jsonl, line 3: answers is not a list of texts"),
        ("trec", '{"pred": "x", "answers": ["Date"]}', r"trec.jsonl, line 3: all_classes is not a list"),
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
    for benchmark in ("longbench", "ruler", "bbh"):
        with pytest.raises(UserError, match="nowhere: is not a directory"):
            run(capsys, benchmark, tmp_path / "nowhere")
        with pytest.raises(UserError, match=r"holds no "):
            run(capsys, benchmark, tmp_path)
    lines(tmp_path / "lcc.jsonl", {"pred": "x", "answers": ["x"]})
    (tmp_path / "result.json").write_text("[1]")
    with pytest.raises(UserError, match=r"result.json: is not a JSON object of scores"):
        run(capsys, "longbench", tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"pred": "caf\xe9"}\n')
    (tmp_path / "latin.jsonl").rename(tmp_path / "trec.jsonl")
    (tmp_path / "result.json").unlink()
    with pytest.raises(UserError, match=r"trec.jsonl, line 1: not UTF-8"):
        run(capsys, "longbench", tmp_path)


@pytest.fixture
def ruler_results(tmp_path: Path) -> Path:
    """The folders that RULER's program leaves at one length: two samples of each task, the first one answered."""
    place = tmp_path / "model" / "synthetic" / "4096"
    references = ["1234567", "7654321"]
    for task in RULER_TASKS:
        samples = [{"index": n, "input": "?", "outputs": references} for n in range(2)]
        lines(place / "data" / task / "validation.jsonl", *samples)
        preds = (" 1234567\n and more", "\x00") if task != "fwe" else ("no", "none")
        rows = [{**sample, "pred": pred, "others": {}} for sample, pred in zip(samples, preds, strict=True)]
        lines(place / "pred" / f"{task}.jsonl", *rows)
    scores = dict.fromkeys(RULER_TASKS, 25.0) | {"qa_1": 50.0, "qa_2": 49.5, "fwe": 0.0}
    table = [[*range(14)], ["Tasks", *scores], ["Score", *scores.values()], ["Nulls", *["1/2"] * 13]]
    text = "".join(",".join(map(str, row)) + "\n" for row in table)
    (place / "pred" / "summary.csv").write_text(text)
    return place / "pred"


def test_ruler_predictions_and_submission_beside_published_scores(
    ruler_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = scored(capsys, "ruler", tmp_path)
    tasks = content["tasks"]
    assert list(tasks) == list(RULER_TASKS)
    assert tasks["vt"] == {"n": 2, "score": 25, "published": 25, "difference": 0, "nulls": 1}
    assert (tasks["qa_1"]["score"], tasks["qa_2"]["difference"]) == (50, 0.5)  # any reference is enough
    assert content["mean"] == pytest.approx((10 * 25 + 2 * 50) / 13)
    assert (content["missing"], content["all_zero"]) == ([], ["fwe"])
    shown = run(capsys, "ruler", tmp_path)
    assert "model/synthetic/4096/pred" in shown
    assert "12 of 13 equal the published scores" in shown
    assert "every prediction scores 0: fwe" in shown

    rows = ["Task,ID,Prediction"]  # as RULER's own file: predictions stripped, without their references
    for task in RULER_TASKS:
        (ruler_results / f"{task}.jsonl").unlink()
        rows += (
            [f"{task},0,no", f"{task},1,none"] if task == "fwe" else [f'{task},0,"1234567\n and more"', f"{task},1,"]
        )
    (ruler_results / "submission.csv").write_text("\n".join(rows) + "\n")
    assert scored(capsys, "ruler", ruler_results)["tasks"] == tasks
    (ruler_results.parent / "data").rename(tmp_path / "elsewhere")
    assert scored(capsys, "ruler", ruler_results, "--data", tmp_path / "elsewhere")["tasks"] == tasks
    with pytest.raises(
        UserError, match=r"submission.csv: has no references, .*cwe/validation.jsonl does not exist; .* --data"
    ):
        run(capsys, "ruler", ruler_results)
    (ruler_results / "submission.csv").write_text("Task,ID,Prediction\nvt,0,a\n")
    with pytest.raises(UserError, match=r"submission.csv: lacks 1 of 2 samples of vt, such as 1; give all"):
        run(capsys, "ruler", ruler_results, "--data", tmp_path / "elsewhere")
    (ruler_results / "submission.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "elsewhere" / "cwe" / "validation.jsonl").write_text('{"index": 0, "outputs": ["x"]}\n')
    with pytest.raises(UserError, match=r"validation.jsonl has no sample 1; give the samples that the model read"):
        run(capsys, "ruler", ruler_results, "--data", tmp_path / "elsewhere")
    (ruler_results / "submission.csv").write_text("Task,ID,Prediction\nvt,0,a\nvt,0,b\n")
    with pytest.raises(UserError, match=r"submission.csv: must hold Task, ID and Prediction, each sample once"):
        run(capsys, "ruler", ruler_results)


def test_ruler_without_a_task_has_no_mean_and_bad_lines_are_named(
    ruler_results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ruler_results / "vt.jsonl").unlink()
    assert scored(capsys, "ruler", ruler_results)["missing"] == ["vt"]
    assert "no mean: vt missing" in run(capsys, "ruler", ruler_results)
    again = (ruler_results / "cwe.jsonl").read_text()
    (ruler_results / "cwe.jsonl").write_text(again + again)
    with pytest.raises(UserError, match=r"cwe.jsonl, line 3: sample 0 occurs twice"):
        run(capsys, "ruler", ruler_results)
    (ruler_results / "cwe.jsonl").write_text('{"index": 0, "pred": "x"}\n')
    with pytest.raises(UserError, match=r"cwe.jsonl, line 1: has no field 'outputs'"):
        run(capsys, "ruler", ruler_results)
    for outputs in ("[1]", "[]", '"12345"', '{"a": 1}', "null"):
        (ruler_results / "cwe.jsonl").write_text(f'{{"index": 0, "pred": "1", "outputs": {outputs}}}\n')
        with pytest.raises(UserError, match=r"cwe.jsonl, line 1: outputs is not a list of texts, one at least"):
            run(capsys, "ruler", ruler_results)
    (ruler_results / "cwe.jsonl").write_text('{"index": 0, "pred": 1, "outputs": ["1"]}\n')
    with pytest.raises(UserError, match=r"cwe.jsonl, line 1: pred is not a text; give it as the model wrote it"):
        run(capsys, "ruler", ruler_results)
    (ruler_results / "cwe.jsonl").write_text(again)
    (ruler_results / "summary.csv").write_text("0,1\nTasks,cwe\n")
    with pytest.raises(UserError, match=r"summary.csv: has no rows Tasks and Score"):
        run(capsys, "ruler", ruler_results)


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


def test_bbh_official_outputs_are_scored_by_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"input": "?", "prediction": f"So the answer is {answer}.", "target": "No"} for answer in ("No", "Yes")]
    chains = tmp_path / "code-davinci-002-cot"
    chains.mkdir()
    (chains / "navigate_few_shot_template_0-255000.json").write_text(json.dumps({"canary": "...", "outputs": rows}))
    lines(chains / "sports_understanding_few_shot_template_0-255000.jsonl", *rows)
    (chains / "navigate_few_shot_template_0-255000_eval_metrics.jsonl").write_text('{"accuracy": 50.0}')
    lines(tmp_path / "direct" / "snarks.jsonl", {"prediction": "(A)", "target": "(A)"})
    found = json.loads(run(capsys, "bbh", tmp_path, "--json"))
    assert found["code-davinci-002-cot"]["tasks"] == {
        task: {"strict": 50.0, "tolerant": 50.0, "n": 2} for task in ("navigate", "sports_understanding")
    }
    assert found["direct"]["all_zero"] == ["snarks"]
    assert "every prediction scores 0: snarks" in run(capsys, "bbh", tmp_path)
    (chains / "snarks_few_shot_template_0-255000.json").write_text('{"examples": []}')
    with pytest.raises(UserError, match=r"255000.json: holds no outputs with prediction and target"):
        run(capsys, "bbh", tmp_path)


def test_bbh_outputs_that_cannot_be_scored_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "samples_bbh_navigate_2026-11-28.jsonl"
    lines(log, logged(0, "x", "Yes"), logged(0, "x", "Yes"))
    with pytest.raises(UserError, match=r"line 2: sample 0 occurs twice"):
        run(capsys, "bbh", tmp_path)
    lines(log, logged(0, "x", "Yes"), {"doc_id": 1, "target": "Yes", "resps": [[[-1.5, False]]]})
    with pytest.raises(UserError, match=r"line 2: resps holds no text"):
        run(capsys, "bbh", tmp_path)
    log.write_text(json.dumps(logged(0, "x", "Yes")) + '\n{"doc_')
    with pytest.raises(UserError, match=r"line 2: not JSON"):
        run(capsys, "bbh", tmp_path)
    lines(log, logged(0, "x", "Yes"))
    lines(tmp_path / "samples_bbh_navigate_2026-11-29.jsonl", logged(0, "x", "Yes"))
    with pytest.raises(UserError, match=r"both hold navigate"):
        run(capsys, "bbh", tmp_path)
    log.write_text("")
    (tmp_path / "samples_bbh_navigate_2026-11-29.jsonl").unlink()
    with pytest.raises(UserError, match=r"holds no sample"):
        run(capsys, "bbh", tmp_path)
    lines(log, {**logged(0, "x", "Yes"), "target": ["Yes"]})
    with pytest.raises(UserError, match=r"line 1: target is not a text; give it as the model wrote it"):
        run(capsys, "bbh", tmp_path)
    log.unlink()
    official = tmp_path / "navigate_few_shot_template_0-255000.json"
    official.write_text('{"outputs": [{"prediction": "Yes", "target": "Yes"}, {"prediction": null, "target": "Yes"}]}')
    with pytest.raises(UserError, match=r"255000.json output 1: prediction is not a text"):
        run(capsys, "bbh", tmp_path)
