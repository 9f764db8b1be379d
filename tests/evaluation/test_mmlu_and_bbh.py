"""MMLU and BBH on small local data equal what plain transformers gives by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tokenweight.errors import UserError
from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.bbh import BBH_TASKS
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.hf_model import HFModel
from tokenweight.evaluation.mmlu import MMLU_SUBJECTS
from tokenweight.evaluation.rows import read_rows
from tokenweight.evaluation.run import evaluate_checkpoint, rescore_unit
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.recipes import schema as settings
from tokenweight.recipes.schema import Evaluation, Execution

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def _log_likelihood(harness: HFModel, context: str, choice: str) -> float:
    ids, n_context = harness.lm.tok_encode(context + choice), len(harness.lm.tok_encode(context))
    with torch.no_grad():
        logs = harness.lm.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(float(logs[i - 1, ids[i]]) for i in range(n_context, len(ids)))


def test_mmlu_by_hand(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path, context_tokens: int
) -> None:
    subject = "high_school_physics"
    jobs = [UnitRun(Unit("mmlu", name), None, tmp_path / name) for name in (subject, "anatomy")]
    assert list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution)) != []
    harness = HFModel(checkpoint, context_tokens, execution, "fp32")
    files = BENCHMARKS["mmlu"].raw_files(Unit("mmlu", subject), evaluation)["mmlu.data"]
    dev, test = map(mmlu.read_split, files)

    def shown(document: dict[str, object], answer: str = "") -> str:
        choices = "".join(f"{letter}. {c}\n" for letter, c in zip("ABCD", document["choices"], strict=True))  # type: ignore[call-overload]
        return f"{document['question']}\n{choices}Answer:{answer}"

    head = "The following are multiple choice questions (with answers) about high school physics.\n\n"
    rows = read_rows(tmp_path / subject)
    assert [row.doc_id for row in rows] == [0, 1]
    for row, document in zip(rows, test, strict=False):
        shots = 5 - _dropped(harness, row.untruncated_tokens, row.n_prompt_tokens, head, dev, document, shown)
        prompt = head + "".join(shown(d, f" {'ABCD'[d['answer']]}\n\n") for d in dev[:shots]) + shown(document)
        expected = [_log_likelihood(harness, prompt, f" {letter}") for letter in "ABCD"]
        assert json.loads(row.output) == pytest.approx(expected, abs=1e-4)
        best = "ABCD"[max(range(4), key=expected.__getitem__)]
        assert (row.filtered, json.loads(row.reference)) == (best, ["ABCD"[document["answer"]]])
        assert row.score == float(best == "ABCD"[document["answer"]])
        assert row.n_prompt_tokens == harness.read(prompt).n_tokens


def _dropped(harness, untruncated, used, head, dev, document, shown):  # type: ignore[no-untyped-def]
    """How many of the first five examples did not fit the tiny context."""
    for dropped in range(6):
        prompt = head + "".join(shown(d, f" {'ABCD'[d['answer']]}\n\n") for d in dev[: 5 - dropped]) + shown(document)
        if dropped == 0:
            assert harness.read(prompt).n_tokens == untruncated
        if harness.read(prompt).n_tokens == used:
            return dropped
    raise AssertionError("no number of examples gives the prompt's length")


EXPRESSIONS = Unit("bbh", "boolean_expressions")


@pytest.fixture
def bbh_settings(evaluation: Evaluation, data: Path) -> Evaluation:
    return evaluation.model_copy(update={"bbh": settings.Bbh(data=str(data / "bbh"), samples=1, max_new_tokens=8)})


def test_bbh_prompt(bbh_settings: Evaluation, checkpoint: Path, execution: Execution, tmp_path: Path) -> None:
    # A context that holds all three exemplars: this test is about prompts, not about fitting.
    model = HFModel(checkpoint, 8192, execution, "fp32")
    (sample,) = bbh.Bbh().samples([UnitRun(EXPRESSIONS, (), tmp_path)], bbh_settings, model)
    assert sample.text.startswith(
        "Evaluate the result of a random Boolean expression.\n\nQ: not ( ( not not True ) ) is\n"
    )
    assert sample.text.endswith("\n\nQ: not ( True ) and 0 is\nA: Let's think step by step.\n")
    assert sample.text.count("So the answer is ") == 3
    arguments = sample.instances[0].args[1]
    assert (arguments["max_gen_toks"], arguments["do_sample"]) == (8, False)
    assert arguments["until"] == ["</s>", "Q", "\n\n"]


@pytest.mark.parametrize(
    ("output", "strict", "tolerant"),
    [
        ("So the answer is False.", 1.0, 1.0),
        ("So the answer is False", 0.0, 1.0),
        ("So the answer is False. ", 0.0, 1.0),
        ("so The Answer is: **False**.\nmore", 0.0, 1.0),
        ("So the answer is True.", 0.0, 0.0),
        ("I do not know.", 0.0, 0.0),
    ],
)
def test_bbh_strict_and_tolerant(output: str, strict: float, tolerant: float, bbh_settings: Evaluation) -> None:
    scored = bbh.Bbh().score("boolean_expressions", output, ["False"], None, bbh_settings)
    assert (scored.score, scored.tolerant_score) == (strict, tolerant)
    (task,) = bbh.Bbh().harness_tasks([EXPRESSIONS], bbh_settings).values()
    document = {"input": "", "target": "False"}
    instance = task.construct_requests(doc=document, ctx="", metadata=(task.config.task, 0, 1))
    instance.resps = [output]
    task._instances = [instance]
    task.apply_filters()
    filtered = instance.filtered_resps["get-answer"]
    assert (scored.filtered, strict) == (filtered, task.process_results(document, [filtered])["exact_match"])


@pytest.mark.parametrize(
    ("output", "right"),
    [("the answer is (A). ", True), ("the answer is A", True), ("the answer is (A) 05/01/2021.", True),
     ("the answer is (A) and so on.", True), ("the answer is (A) or (B).", False), ("the answer is (A), (B).", False),
     ("the answer is A and B).", False), ("the answer is (B).", False), ("the answer is Alaska.", False), ("", False)],
)  # fmt: skip
def test_options(output: str, right: bool) -> None:
    assert bbh.tolerant_score(output, "(A)") == float(right)


def test_stored_outputs_score_the_same_again(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path, context_tokens: int
) -> None:
    jobs = [UnitRun(Unit(b, t), None, tmp_path / t) for b, t in (("mmlu", "virology"), ("bbh", "snarks"))]  # type: ignore[arg-type]
    assert len(list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))) == 2
    for job in jobs:
        rows = read_rows(job.out_dir)
        (again := tmp_path / f"{job.unit.task}-again").mkdir()
        rescore_unit(job.out_dir, job.unit, evaluation, None, again)
        assert read_rows(again) == rows


def test_missing_and_malformed_files_are_named(evaluation: Evaluation, tmp_path: Path) -> None:
    empty = evaluation.model_copy(
        update={
            "mmlu": evaluation.mmlu.model_copy(update={"data": str(tmp_path)}),
            "bbh": evaluation.bbh.model_copy(update={"data": str(tmp_path)}),
        }
    )
    with pytest.raises(UserError, match=r"anatomy_dev\.csv, .*anatomy_test\.csv missing"):
        BENCHMARKS["mmlu"].raw_files(Unit("mmlu", "anatomy"), empty)
    with pytest.raises(UserError, match=r"snarks\.json missing"):
        BENCHMARKS["bbh"].raw_files(Unit("bbh", "snarks"), empty)
    (tmp_path / "x.csv").write_text("question,answer\n")
    with pytest.raises(UserError, match="header"):
        mmlu.read_split(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("question,choice0,choice1,choice2,choice3,answer\nq,a,b,c,d,4\n")
    with pytest.raises(UserError, match="no answer 0-3"):
        mmlu.read_split(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_bytes(b"question,choice0,choice1,choice2,choice3,answer\ncaf\xe9,a,b,c,d,0\n")
    with pytest.raises(UserError, match=r"x\.csv: is not UTF-8 \(b'.xe9'\)"):
        mmlu.read_split(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("")
    with pytest.raises(UserError, match=r"x\.csv: is empty"):
        mmlu.read_split(tmp_path / "x.csv")
    (tmp_path / "x.json").write_text('{"examples": [')
    with pytest.raises(UserError, match=r"x\.json: not JSON \(Expecting value"):
        bbh.read_examples(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"examples": [{"input": "a"}]}')
    with pytest.raises(UserError, match="official layout"):
        bbh.read_examples(tmp_path / "x.json")
    for target in ("null", '""', r'"\ud800"'):
        (tmp_path / "x.json").write_text(f'{{"examples": [{{"input": "a", "target": {target}}}]}}')
        with pytest.raises(UserError, match="is not a text"):
            bbh.read_examples(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="not JSON"):
        bbh.read_examples(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["mmlu", "bbh"])
def test_hub_data_offline_is_one_clear_line(
    name: str,
    checkpoint: Path,
    evaluation: Evaluation,
    execution: Execution,
    tmp_path: Path,
    context_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    part = getattr(evaluation, name).model_copy(update={"data": "hub"})
    job = UnitRun(Unit(name, {"mmlu": "anatomy", "bbh": "snarks"}[name]), None, tmp_path)  # type: ignore[arg-type]
    assert BENCHMARKS[job.unit.benchmark].raw_files(job.unit, evaluation.model_copy(update={name: part})) == {}
    with pytest.raises(UserError, match=rf"evaluation\.{name}\.data: .* cannot be loaded"):
        list(
            evaluate_checkpoint(
                checkpoint, [job], evaluation.model_copy(update={name: part}), context_tokens, execution
            )
        )


@pytest.mark.skipif(not SHARED.exists(), reason="real data not here")
def test_official_bbh_files_hold_all_tasks() -> None:
    assert sum(len(bbh.read_examples(SHARED / "bbh" / f"{task}.json")) for task in BBH_TASKS) == 6511


def test_lm_eval_knows_all_our_subjects_and_tasks() -> None:
    from tokenweight.evaluation.harness_tasks import task_manager

    assert set(task_manager(mmlu.Mmlu.folder).all_subtasks) == {f"mmlu_{s}" for s in MMLU_SUBJECTS}
    assert set(task_manager(bbh.Bbh.folder).all_subtasks) == {f"bbh_cot_fewshot_{t}" for t in BBH_TASKS}
