"""Any task of lm-eval: what it asks, gets and scores is what lm-eval's own run does, under this project's guards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.hf_model import HFModel
from tokenweight.evaluation.rows import Row, read_rows, sha256_text
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS, in_order, offered, unreachable
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import SampleMean, UnitMean
from tokenweight.recipes.schema import Evaluation, Execution, LmEval

Run = Callable[..., tuple[int, str, str]]
CHAT = (
    "{{ bos_token }}{% for turn in messages %}<{{ turn['role'] }}> {{ turn['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
EXACT = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
TASKS: dict[str, dict[str, Any]] = {
    "tw_add": {  # drawn examples, two filters, a metric of the whole corpus
        "fewshot_split": "train", "num_fewshot": 2, "doc_to_text": "Q: {{question}}\nA:", "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8, "do_sample": False},
        "filter_list": [
            {"name": "first", "filter": [{"function": "take_first"}]},
            {"name": "letter", "filter": [{"function": "regex", "regex_pattern": "([A-Za-z])"}, {"function": "take_first"}]},
        ],
        "metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}, EXACT],
    },
    "tw_pick": {
        "output_type": "multiple_choice", "doc_to_text": "Which is larger? {{question}}", "doc_to_target": "{{gold}}",
        "doc_to_choice": "{{choices}}", "gen_prefix": "I say", "tag": "tw_choices",
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")],
    },
    "tw_which": {  # a context for each choice
        "output_type": "multiple_choice", "doc_to_text": "{{gold}}", "doc_to_target": "it is so.", "tag": "tw_choices",
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
    "tw_last": {
        "output_type": "loglikelihood", "doc_to_text": "{{question}}", "doc_to_target": " {{answer}}",
        "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}],
    },
    "tw_grade": {
        "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}", "process_results": "!function grades.grade",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 4},
        "metric_list": [{"metric": "letters", "aggregation": "mean", "higher_is_better": False}],
    },
    "tw_roll": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{question}}"},
    "tw_code": {"doc_to_text": "{{question}}", "doc_to_target": "{{answer}}", "unsafe_code": True},
    "tw_dice": {"doc_to_text": "a", "doc_to_target": "b", "generation_kwargs": {"do_sample": True, "temperature": 0.7}},
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks of one's own over local JSON Lines."""
    root = tmp_path_factory.mktemp("tasks")
    rows = [
        {
            "question": f"What is {i} + {i}?",
            "answer": str(2 * i),
            "choices": [str(i), f"{i} or {i + 7}", "neither"],
            "gold": i % 2,
        }
        for i in range(6)
    ]
    for split, count in (("test", 6), ("train", 5)):
        (root / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    files = {split: str(root / f"{split}.jsonl") for split in ("test", "train")}
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test"}
    (root / "grades.py").write_text(
        "def grade(doc, results):\n    return {'letters': sum(letter.isalpha() for letter in results[0])}\n"
    )
    for task, said in TASKS.items():
        with (root / f"{task}.yaml").open("w") as stream:
            YAML().dump({"task": task, **data, **said}, stream)
    text = (root / "tw_grade.yaml").read_text()
    (root / "tw_grade.yaml").write_text(text.replace("'!function grades.grade'", "!function grades.grade"))
    (root / "tw_both.yaml").write_text("group: tw_both\ntask: [{task: tw_pick, num_fewshot: 0}, tw_which]\n")
    return root


@pytest.fixture
def own(evaluation: Evaluation, folder: Path) -> Evaluation:
    return evaluation.model_copy(update={"lm_eval": LmEval(include_path=str(folder))})


def rows_of(
    name: str, checkpoint: Path, evaluation: Evaluation, execution: Execution, out: Path, context: int = 512
) -> Mapping[str, list[Row]]:
    runs = [UnitRun(unit, (), out / unit.task) for unit in BENCHMARKS[name].units(evaluation, context)]
    list(evaluate_checkpoint(checkpoint, runs, evaluation, context, execution))
    return {run.unit.task: read_rows(run.out_dir) for run in runs}


@pytest.mark.parametrize(
    ("name", "metric", "filtered", "chat"),
    [
        ("tw_add", "exact_match", "first", False),
        ("tw_add", "exact_match", "first", True),
        ("tw_add:exact_match:letter", "exact_match", "letter", False),
        ("tw_pick", "acc", "none", False),
        ("tw_pick", "acc", "none", True),
        ("tw_pick:acc_norm", "acc_norm", "none", False),
        ("tw_both", "acc", "none", False),
        ("tw_last", "acc", "none", False),
        ("tw_grade", "letters", "none", False),
    ],
)
def test_prompts_answers_and_scores_are_those_of_lm_evals_own_run(
    name: str,
    metric: str,
    filtered: str,
    chat: bool,
    checkpoint: Path,
    folder: Path,
    own: Evaluation,
    execution: Execution,
    tmp_path: Path,
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    if chat:
        own = own.model_copy(update={"lm_eval": own.lm_eval.model_copy(update={"chat_template": True})})
        with pytest.raises(UserError, match=r"chat_template: the model's tokenizer has none"):
            rows_of(f"lm_eval:{name}", checkpoint, own, execution, tmp_path)
        checkpoint = shutil.copytree(checkpoint, tmp_path / "chat")
        (checkpoint / "chat_template.jinja").write_text(CHAT)
    lm = HFLM(pretrained=str(checkpoint), device="cpu", dtype="float32", max_length=512, batch_size=1)
    manager = TaskManager(include_defaults=False, include_path=str(folder))
    task = name.partition(":")[0]
    theirs = simple_evaluate(
        model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=True, apply_chat_template=chat
    )["samples"]
    ours = rows_of(f"lm_eval:{name}", checkpoint, own, execution, tmp_path)
    assert ours.keys() == theirs.keys()
    for one, rows in ours.items():
        samples = {sample["doc_id"]: sample for sample in theirs[one] if sample["filter"] == filtered}
        assert len(rows) == len(samples) == 6
        for row in rows:
            sample = samples[row.doc_id]
            assert row.prompt_sha256 == sha256_text(sample["arguments"][0][0])
            assert (row.metric, row.score) == (metric, float(sample[metric]))
            if TASKS[one].get("output_type"):
                answers = [(nats, bool(greedy)) for ((nats, greedy),) in sample["resps"]]
                assert [(pytest.approx(nats, abs=1e-4), greedy) for nats, greedy in json.loads(row.output)] == answers
            else:
                assert (row.output, row.filtered) == (sample["resps"][0][0], str(sample["filtered_resps"][0]))


def test_results_and_samples_are_written_as_lm_eval_writes_them(
    checkpoint: Path, folder: Path, tmp_path: Path, run_command: Run, pieces_in_order: None
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table

    names = ["tw_add", "tw_pick"]
    given = [
        "--tasks",
        ",".join(names),
        "--set",
        f"evaluation.lm_eval.include_path={folder}",
        "--output-path",
        "ours",
        "--lengths",
        "auto",
    ]
    code, out, err = run_command(
        tmp_path, "evaluate", "--model", str(checkpoint), "--scale", "smoke", "--device", "cpu", *given
    )
    assert code == 0, err
    tracker = EvaluationTracker(str(tmp_path / "theirs"))
    arguments = f"pretrained={checkpoint},dtype=float32,max_length=512"
    tracker.general_config_tracker.log_experiment_args("hf", arguments, "", "", fewshot_as_multiturn=False)
    manager = TaskManager(include_defaults=False, include_path=str(folder))
    results = simple_evaluate(
        "hf", arguments, tasks=list(names), task_manager=manager, device="cpu", batch_size=1, log_samples=True
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results, samples)
    for name in names:
        tracker.save_results_samples(name, samples[name])

    def written(place: str, pattern: str) -> str:
        (file,) = (tmp_path / place).glob(f"*/{pattern}")
        assert place == "theirs" or str(file.relative_to(tmp_path)) in out or "samples" in pattern
        return file.read_text()

    ours, theirs = (json.loads(written(place, "results_*.json")) for place in ("ours", "theirs"))
    for kind in ("n-samples", "n-shot"):
        assert ours[kind] == theirs[kind]
    for name in names:
        own = ours["results"][name]
        assert {"name", "alias", "sample_len"} < own.keys() <= theirs["results"][name].keys()
        assert own == {key: pytest.approx(theirs["results"][name][key], abs=1e-9) for key in own}
        assert ours["configs"][name]["doc_to_text"] == theirs["configs"][name]["doc_to_text"]
        (metric,) = (key for key in own if "," in key and "stderr" not in key)
        lines = [json.loads(line) for line in written("theirs", f"samples_{name}_*.jsonl").splitlines()]
        lines = [line for line in lines if line["filter"] == metric.partition(",")[2]]
        mine = [json.loads(line) for line in written("ours", f"samples_{name}_*.jsonl").splitlines()]
        assert len(mine) == len(lines) == 6
        for line, other in zip(mine, lines, strict=True):
            assert line.keys() == {*other.keys()} - {"doc_hash", "acc_norm", "bleu"}
            same = line.keys() - {"doc", "arguments", "metrics"}
            if name == "tw_add":
                assert {key: line[key] for key in same} == {key: other[key] for key in same}
            else:
                nats = [float(one[0][0]) for one in other["resps"]]
                assert [float(one[0][0]) for one in line["resps"]] == pytest.approx(nats, abs=1e-4)
                same -= {"resps", "filtered_resps"}
                assert {key: line[key] for key in same} == {key: other[key] for key in same}
    assert "tw_pick" in make_table(ours)


def test_what_does_not_fit_loses_examples_or_is_refused(
    checkpoint: Path, own: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    whole = rows_of("lm_eval:tw_add", checkpoint, own, execution, tmp_path / "whole")["tw_add"]
    room = max(row.n_prompt_tokens for row in whole) + 7  # one token too few with the answer of 8
    short = rows_of("lm_eval:tw_add", checkpoint, own, execution, tmp_path / "short", room)["tw_add"]
    assert [row.truncated for row in short].count(True) >= 1
    for one, other in zip(whole, short, strict=True):
        assert (one.prompt_sha256 == other.prompt_sha256) is not other.truncated  # those behind have lm-eval's examples
        assert other.n_prompt_tokens + 8 <= room
        assert not other.left_truncated
    with pytest.raises(UserError, match=r"an answer of tw_add may fill the context of 8 tokens; give less with --set"):
        BENCHMARKS["lm_eval:tw_add"].units(own, 8)
    with pytest.raises(StageError, match="document 0 does not fit 12 tokens with its choices"):
        rows_of("lm_eval:tw_which", checkpoint, own, execution, tmp_path / "choices", 12)


def test_a_killed_run_resumes_and_units_know_their_settings(
    checkpoint: Path, own: Evaluation, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of("lm_eval:tw_add", checkpoint, own, execution, tmp_path / "whole")
    monkeypatch.setattr(HFModel, "batch_size", lambda self, *sizes: 2)
    ask, asked = HFModel.ask, list[str]()

    def dies_after_the_first(self: HFModel, instances: list[Any], sequences: int) -> list[Any]:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.extend(instance.args[0] for instance in instances)
        return ask(self, instances, sequences)

    monkeypatch.setattr(HFModel, "ask", dies_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        rows_of("lm_eval:tw_add", checkpoint, own, execution, tmp_path / "killed")
    monkeypatch.setattr(HFModel, "ask", ask)
    assert rows_of("lm_eval:tw_add", checkpoint, own, execution, tmp_path / "killed") == whole
    limited = own.model_copy(update={"lm_eval": own.lm_eval.model_copy(update={"samples": 2, "fewshot": 0})})
    few = rows_of("lm_eval:tw_add", checkpoint, limited, execution, tmp_path / "few")["tw_add"]
    assert [row.doc_id for row in few] == [0, 1]
    assert few[0].n_prompt_tokens < whole["tw_add"][0].n_prompt_tokens


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_to_be", "lm-eval .* has no nowhere_to_be; see `lm-eval ls tasks`"),
        ("tw_roll", "tw_roll asks for loglikelihood_rolling, which is not supported"),
        ("tw_code", "the scores of tw_code may run code that the model writes"),
        ("tw_dice", "tw_dice samples its answers"),
        ("squadv2", "squadv2 is written in Python"),
        ("tw_add:bleu", "bleu is not a mean over samples that each of its tasks has; choose from exact_match"),
        ("tw_last:perplexity", "perplexity is not a mean over samples"),
        ("tw_both:acc_norm", "acc_norm is not a mean over samples that each of its tasks has; choose from acc"),
        ("tw_add:exact_match:last", "last is not a filter of each task; choose from first, letter"),
    ],
)
def test_what_cannot_be_run_is_one_line_before_any_work(name: str, message: str, own: Evaluation) -> None:
    with pytest.raises(UserError, match=f"^lm_eval:{name}: {message}") as caught:
        BENCHMARKS[f"lm_eval:{name}"].units(own, 512)
    assert "\n" not in str(caught.value)


def test_no_such_folder_or_file_is_one_line(own: Evaluation, folder: Path, tmp_path: Path) -> None:
    lost = own.model_copy(update={"lm_eval": LmEval(include_path=str(tmp_path / "none"))})
    with pytest.raises(UserError, match=r"include_path: .*none is not a directory"):
        BENCHMARKS["lm_eval:tw_add"].units(lost, 512)
    text = (folder / "tw_last.yaml").read_text().replace("test.jsonl", "gone.jsonl")
    (tmp_path / "tw_last.yaml").write_text(text)
    lost = own.model_copy(update={"lm_eval": LmEval(include_path=str(tmp_path))})
    (unit,) = BENCHMARKS["lm_eval:tw_last"].units(lost, 512)
    with pytest.raises(UserError, match=r"lm_eval:tw_last: .*gone\.jsonl missing; correct dataset_kwargs of tw_last"):
        BENCHMARKS["lm_eval:tw_last"].raw_files(unit, lost)


def test_identity_is_the_tasks_own_files_and_text(own: Evaluation, evaluation: Evaluation, folder: Path) -> None:
    benchmark = BENCHMARKS["lm_eval:tw_grade"]
    (unit,) = benchmark.units(own, 512)
    (files,) = benchmark.raw_files(unit, own).values()
    assert [file.name for file in files] == ["grades.py", "test.jsonl", "train.jsonl"]
    protocol = benchmark.protocol(unit, own)
    assert protocol["task"]["process_results"] == "grades.grade"
    assert str(folder) not in json.dumps(protocol)
    assert benchmark.hub(own) is None
    assert unreachable(["lm_eval:tw_grade"], own) == []
    known = BENCHMARKS["lm_eval:arc_easy"]
    (unit,) = known.units(own, 512)
    assert known.settings_of(unit, own)["lm_eval"].include_path is None
    assert known.raw_files(unit, own) == {}
    hub = known.hub(own)
    assert hub is not None
    assert (hub.repo_id, hub.subset) == ("allenai/ai2_arc", "ARC-Easy")


def test_a_column_says_metric_unit_and_direction(own: Evaluation) -> None:
    def shown(name: str) -> tuple[list[Column], list[str]]:
        plain = Column(key="k", label=f"lm_eval:{name}", measure=SampleMean(benchmark=f"lm_eval:{name}"))
        return BENCHMARKS[f"lm_eval:{name}"].columns(plain, own, 512)

    ((column,), (note,)) = shown("tw_both")
    assert (column.label, column.measure) == ("tw_both (acc)", SampleMean(benchmark="lm_eval:tw_both"))
    assert note.endswith("in percent; higher is better. Its 2 tasks are averaged over all samples.")
    ((column,), (note,)) = shown("tw_grade")
    assert column.measure == UnitMean(benchmark="lm_eval:tw_grade", task="tw_grade")
    assert note.endswith("in its own unit; lower is better.")
    assert [unit.task for unit in BENCHMARKS["lm_eval:tw_choices"].units(own, 512)] == ["tw_pick", "tw_which"]


def test_names_are_offered_and_ordered() -> None:
    assert offered("evaluate")[-1] == "lm_eval:TASK"
    assert offered("evaluate", "mmlu,lm_eval:a, lm_eval:b")[-2:] == ["lm_eval:a", "lm_eval:b"]
    assert in_order(["lm_eval:b", "mmlu", "lm_eval:a", "ruler"]) == ["ruler", "mmlu", "lm_eval:a", "lm_eval:b"]
    for unknown in ("rulr", "mmlu:anatomy", "lm_eval", "lm_eval:"):
        with pytest.raises(
            UserError, match=f"benchmarks: '{unknown}' is unknown; (choose one of ruler, longbench|did you mean)"
        ):
            in_order([unknown])
