"""Long-context tasks of lm-eval on small data in their official layouts, in place of the hub's: as in lm-eval's own run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.lm_eval_task import in_place_of_hub
from tokenweight.evaluation.rows import read_rows, sha256_text
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.recipes.schema import Evaluation, Execution, LmEval, LocalBase
from tokenweight.reports.targets.find import find_experiments, models_experiment

Run = Callable[..., tuple[int, str, str]]
NEW_TOKENS, CONTEXT = 6, 1024
SHIPPED = ("babilong_qa6", "longbench2_table")
GIVEN = ("infinitebench_passkey", "longproc_countdown_0.5k", "graphwalks_128k")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of three data sets, with the columns that their tasks read."""
    root = tmp_path_factory.mktemp("hub")
    passkey = [
        {
            "id": i,
            "context": "The grass is green. " * 8 + f"The pass key is {i}713. Remember it. " + "The sky is blue. " * 8,
            "input": "What is the pass key?",
            "answer": [f"{i}713"],
            "options": [],
        }
        for i in range(2)
    ]
    countdown = [
        {
            "input_prompt": f"Combine the numbers {i + 2}, 3 and 5 to get {i + 10}.\nSolution:",
            "reference_output": f"{i + 2} + 3 + 5 = {i + 10}",
            "metadata": json.dumps({"nums": [i + 2, 3, 5], "target": i + 10}),
        }
        for i in range(2)
    ]
    graphs = [
        {"prompt": f"a -> b\nb -> c{i}\nWhat are the children of b?\nFinal Answer:", "answer_nodes": [f"c{i}"]}
        for i in range(2)
    ]
    for repo_id, name, rows in (
        ("xinrongzhang2022/InfiniteBench", "passkey.jsonl", passkey),
        ("PrincetonPli/LongProc", "countdown.jsonl", countdown),
    ):
        (root / repo_id).mkdir(parents=True)
        (root / repo_id / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    cards = {
        "xinrongzhang2022/InfiniteBench": ("default", "passkey", "passkey.jsonl"),
        "PrincetonPli/LongProc": ("countdown_0.5k", "test", "countdown.jsonl"),
    }
    for repo_id, (subset, split, file) in cards.items():
        card = f"---\nconfigs:\n- config_name: {subset}\n  data_files:\n  - split: {split}\n    path: {file}\n---\n"
        (root / repo_id / "README.md").write_text(card)
    (root / "openai/graphwalks").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(graphs), root / "openai/graphwalks/graphwalks_128k_and_shorter.parquet")
    return root


def settings_for(task: str, hub: Path) -> LmEval:
    return LmEval(data=str(hub) if task in GIVEN else None, max_new_tokens=NEW_TOKENS, unsafe_code=task in GIVEN)


@pytest.mark.parametrize("task", [*SHIPPED, *GIVEN])
def test_prompts_answers_and_scores_are_those_of_lm_evals_own_run(
    task: str, hub: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from tokenweight.evaluation.harness_tasks import library

    settings = settings_for(task, hub)
    own = evaluation.model_copy(update={"lm_eval": settings})
    manager = TaskManager(include_defaults=False, include_path=str(library() / task.partition("_")[0]))
    lm = HFLM(pretrained=str(smoke_base_dir()), device="cpu", dtype="float32", max_length=CONTEXT, batch_size=1)
    given: dict[str, Any] = {"gen_kwargs": f"max_gen_toks={NEW_TOKENS}"} if "longbench2" not in task else {}
    with in_place_of_hub(settings):
        theirs = simple_evaluate(
            model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=True,
            confirm_run_unsafe_code=True, **given,
        )["samples"][task]  # fmt: skip
    (unit,) = BENCHMARKS[f"lm_eval:{task}"].units(own, CONTEXT)
    run = UnitRun(unit, (), tmp_path / "unit")
    list(evaluate_checkpoint(smoke_base_dir(), [run], own, CONTEXT, execution))
    rows = read_rows(run.out_dir)
    assert [row.doc_id for row in rows] == [sample["doc_id"] for sample in theirs] == [0, 1]
    for row, sample in zip(rows, theirs, strict=True):
        assert row.prompt_sha256 == sha256_text(sample["arguments"][0][0])
        assert (row.truncated, row.score) == (False, float(sample[row.metric]))
        if "longbench2" in task:
            likelihoods = [one[0][0] for one in sample["resps"]]
            assert [one[0] for one in json.loads(row.output)] == pytest.approx(likelihoods, abs=1e-4)
        else:
            assert row.output == sample["resps"][0][0]


def test_a_local_data_set_is_the_unit_s_identity_and_what_runs_code_needs_a_word(
    hub: Path, evaluation: Evaluation, tmp_path: Path
) -> None:
    benchmark = BENCHMARKS["lm_eval:infinitebench_passkey"]
    given = evaluation.model_copy(update={"lm_eval": settings_for("infinitebench_passkey", hub)})
    (unit,) = benchmark.units(given, 512)
    files = benchmark.raw_files(unit, given)
    assert {field: [file.name for file in found] for field, found in files.items()} == {
        "lm_eval.data": ["README.md", "passkey.jsonl"]
    }
    assert benchmark.hub(given) is None
    from_hub = evaluation.model_copy(update={"lm_eval": LmEval(data="hub")})
    assert benchmark.raw_files(unit, from_hub) == {}
    assert (found := benchmark.hub(from_hub)) is not None
    assert found.repo_id == "xinrongzhang2022/InfiniteBench"
    absent = evaluation.model_copy(update={"lm_eval": LmEval(data=str(tmp_path / "no"))})
    with pytest.raises(UserError, match=r"lm_eval.data: .*no is not a directory; give one that has ORG/NAME"):
        benchmark.units(absent, 512)
    with pytest.raises(UserError, match=r"scores of longproc_countdown_0.5k may run code .*unsafe_code=true"):
        BENCHMARKS["lm_eval:longproc_countdown_0.5k"].units(from_hub, 512)


def test_a_model_shorter_than_every_length_is_asked_what_has_none() -> None:
    base = LocalBase(path=str(smoke_base_dir()), context_tokens=512)
    spec = models_experiment({"short": "short"}, ["lm_eval:babilong_qa1"])
    (resolved,) = find_experiments([spec], "smoke", bases={"short": base})
    assert [recipe.context_tokens for recipe in resolved.each_recipe] == [512]


@pytest.mark.slow
def test_tasks_of_ours_and_of_lm_eval_in_one_line(tmp_path: Path, run_command: Run) -> None:
    given = ("--scale", "smoke", "--limit", "1", "--tasks", "ruler,longbench,longbench2,babilong", "--json")
    code, out, error = run_command(tmp_path, "evaluate", "--model", str(smoke_base_dir()), *given)
    assert code == 0, error
    report = json.loads(out)
    cells = {column["key"]: cell for column, cell in zip(report["columns"], report["rows"][0]["cells"], strict=True)}
    for key in ("ruler", "longbench", "lm-eval-longbench2", "lm-eval-babilong"):
        assert cells[key]["status"] == "complete"


def test_data_of_a_directory_that_changed_are_read_again(tmp_path: Path) -> None:
    """`datasets` keeps what a directory had by its name and its card's subsets."""
    (place := tmp_path / "some/data").mkdir(parents=True)
    (place / "README.md").write_text("---\nconfigs:\n- config_name: default\n  data_files: rows.jsonl\n---\n")
    for n in (2, 3):
        (place / "rows.jsonl").write_text("".join(json.dumps({"number": number}) + "\n" for number in range(n)))
        with in_place_of_hub(LmEval(data=str(tmp_path))):
            import datasets

            assert len(datasets.load_dataset("some/data")["train"]) == n
