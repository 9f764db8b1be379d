"""A benchmark of one's own is one file: it is planned, evaluated and shown as those of the paper; so is a task of lm-eval."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.hf_model import EvaluatedModel
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.samples import Classes, OutputBenchmark, Sample, Scored
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Evaluation, Execution
from tokenweight.tasks.experiments import plan_models, plan_texts, write_tables
from tokenweight.tasks.pieces import run_in_order

HOW = ModelOptions(scale="smoke", device="cpu")


class Parrot(OutputBenchmark):
    """Does a model say a word again? All that a benchmark of one's own has to be."""

    name = "parrot"
    tasks: ClassVar = {word: Task(metric="said", new_tokens=4) for word in ("lake", "tower")}

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> Iterator[Sample]:
        from lm_eval.api.instance import Instance

        for unit in (run.unit for run in runs):
            for doc_id in range(3):
                prompt = model.checked(f"{unit.task} " * (3 + doc_id), 4)
                asked = (prompt.text, {"max_gen_toks": 4, "until": [], "do_sample": False})
                instance = Instance("generate_until", doc={}, arguments=asked, idx=0, metadata=(unit.id, doc_id, 1))
                yield Sample(unit, doc_id, [instance], prompt, [unit.task], 4)

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        return Scored(output, float(references[0] in output))


def shown(planned: ResolvedExperiment, store: Store, out: Path) -> dict[str, Any]:
    """The JSON of the table, once all of it was made."""
    run_in_order(planned.graph, store, Execution(device="cpu", eval_batch_sequences=4))
    assert {entry.action for entry in schedule(planned.graph, store)} == {"reuse"}
    content: dict[str, Any] = json.loads(write_tables(planned, store, out, figures=False)["json"].read_text())
    return content


def test_a_benchmark_in_one_file_is_planned_evaluated_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BENCHMARKS, "parrot", Parrot())
    store = Store(tmp_path / "store")
    planned, is_made = plan_models([str(smoke_base_dir())], HOW, Inputs(), store, ["parrot"], ())
    assert is_made
    assert [unit.unit for row in planned.manifest.rows for unit in row.units] == ["parrot/lake", "parrot/tower"]
    table = shown(planned, store, tmp_path)
    assert [column["label"] for column in table["columns"]] == ["parrot"]
    (cell,) = (cell for row in table["rows"] for cell in row["cells"])
    assert (cell["status"], cell["n"]) == ("complete", 6)
    assert 0 <= cell["value"] <= 100
    text = f"name: mine\nbenchmarks: [parrot]\nrows: [{{label: base, base: {smoke_base_dir()}}}]\n"
    ((again,), _) = plan_texts([text], "smoke", Inputs(), store)
    assert {entry.action for entry in schedule(again.graph, store)} == {"reuse"}


def test_a_task_of_lm_eval_is_planned_evaluated_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"question": f"The {word} is", "choices": ["old", "new"], "gold": i % 2} for i, word in enumerate("abcde")]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks" / "age.yaml").write_text(
        "task: my_age\ndataset_path: json\ntest_split: test\noutput_type: multiple_choice\n"
        f"dataset_kwargs: {{data_files: {{test: {tmp_path}/tasks/test.jsonl}}}}\n"
        "doc_to_text: '{{question}}'\ndoc_to_target: '{{gold}}'\ndoc_to_choice: '{{choices}}'\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nbenchmarks: ['lm_eval:my_age', 'lm_eval:my_age:acc_norm']\nset: {evaluation.lm_eval.include_path: tasks}\n"
        f"rows: [{{label: base, base: {smoke_base_dir()}}}]\n"
    )
    store, asked = Store(tmp_path / "store"), list[int]()
    ask = EvaluatedModel.loglikelihood
    monkeypatch.setattr(EvaluatedModel, "loglikelihood", lambda *a, **k: (asked.append(len(a[1])), ask(*a, **k))[1])
    ((planned,), _) = plan_texts([str(tmp_path / "mine.yaml")], "smoke", Inputs(), store)
    assert planned.graph.missing == []
    table = shown(planned, store, tmp_path)
    assert sum(asked) == 5 * 2  # two metrics, one question
    units = [unit for row in planned.manifest.rows for unit in row.units]
    summaries = [json.loads((store.root / unit.address / "summary.json").read_text()) for unit in units]
    assert [summary["chance"] for summary in summaries] == [0.5, 0.5]
    low = [cell["ci_low"] is None or cell["ci_low"] <= 50 for row in table["rows"] for cell in row["cells"]]
    assert ("cannot be measured here" in json.dumps(table).lower()) is any(low)
    assert [column["label"] for column in table["columns"]] == ["my_age (acc)", "my_age (acc_norm)"]
    assert [cell["n"] for row in table["rows"] for cell in row["cells"]] == [5, 5]
    notes = json.dumps(table)
    assert "my_age: acc_norm by lm-eval" in notes
    inputs = Inputs(settings=(f"evaluation.lm_eval.include_path={tmp_path}/tasks",))
    again, is_made = plan_models([str(smoke_base_dir())], HOW, inputs, store, ["lm_eval:my_age"], ())
    assert not is_made  # one identity, whichever way it was asked for
    assert [unit.unit for unit in again.manifest.rows[0].units] == ["lm_eval:my_age/my_age"]
    (tmp_path / "tasks" / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    _, is_made = plan_models([str(smoke_base_dir())], HOW, inputs, store, ["lm_eval:my_age"], ())
    assert is_made  # of other data
    with pytest.raises(UserError, match=r"lm_eval:no_such: lm-eval .* has no no_such"):
        plan_models([str(smoke_base_dir())], HOW, inputs, store, ["lm_eval:no_such"], ())
