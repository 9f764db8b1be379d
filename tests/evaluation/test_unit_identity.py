"""Units in the store: what makes one another unit, what is scored again without a model, what a killed run repeats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenweight.evaluation import samples, units
from tokenweight.evaluation.bbh import Bbh
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.hf_model import EvaluatedModel, HFModel
from tokenweight.evaluation.longbench import LongBench
from tokenweight.evaluation.rows import read_rows
from tokenweight.evaluation.units import Evaluate, Prepare
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store, read_record
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import PlanEntry, schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Execution, LocalBase
from tokenweight.reports.targets.find import find_experiments, models_experiment
from tokenweight.tasks.pieces import run_in_order

UNITS = ("ruler/niah_single_1/512", "longbench/trec", "longbench/qasper", "mmlu/anatomy", "bbh/snarks")
PREDICTED = " Person\n\nAnd the answer is (A). "  # of the first line, and of all of it, scores differ
SCORED_AGAIN = "its outputs are in the store: scored again, without the model"
Planned = Callable[..., Graph]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def model(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


@pytest.fixture
def planned(model: Path, data: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The graph of one model and UNITS, as if the benchmarks had no other tasks, under settings."""
    for benchmark in units.BENCHMARKS.values():
        every = type(benchmark).units
        monkeypatch.setattr(
            type(benchmark), "units", lambda *given, every=every: [u for u in every(*given) if u.id in UNITS]
        )

    def plan(*settings: str, **paths: str) -> Graph:
        inputs = Inputs(**({"mmlu": str(data / "mmlu"), "bbh": str(data / "bbh")} | paths), settings=settings)  # type: ignore[arg-type]
        benchmarks = ("ruler", "longbench", "mmlu", "bbh")
        bases = {"tiny": LocalBase(path=str(model), context_tokens=512)}
        spec = models_experiment({"tiny": "tiny"}, benchmarks, lengths_tokens=(512,), limit=2)
        (resolved,) = find_experiments([spec], "smoke", inputs, bases=bases)
        return Planner(store).graph(resolved.each_recipe, benchmarks)

    return plan


def _unit(node: Artifact) -> str:
    assert isinstance(node.stage, Evaluate | Prepare)
    return node.stage.unit.id


def fingerprints(graph: Graph) -> dict[tuple[str, str], str]:
    return {(node.stage.name, _unit(node)): node.identity.fingerprint for node in graph.artifacts}


def changed(before: Graph, after: Graph) -> set[str]:
    """`stage unit` of what has another identity."""
    old, new = fingerprints(before), fingerprints(after)
    assert old.keys() == new.keys()
    return {" ".join(key) for key in old if old[key] != new[key]}


ALL_EVALUATED = {f"evaluate {unit}" for unit in UNITS}
ALL_PREPARED = {f"prepare {unit}" for unit in UNITS if unit.startswith(("ruler", "longbench"))}


def test_another_tokenizer_is_another_unit(planned: Planned, model: Path) -> None:
    before = planned()
    content = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(content | {"clean_up_tokenization_spaces": True}))
    assert changed(before, planned()) == ALL_EVALUATED | ALL_PREPARED


def test_other_weights_are_another_unit_with_the_same_prompts(planned: Planned, model: Path) -> None:
    before = planned()
    (model / "generation_config.json").write_text("{}")
    assert changed(before, planned()) == ALL_EVALUATED


def test_another_precision_is_another_unit_with_the_same_prompts(planned: Planned) -> None:
    before = planned()
    assert changed(before, planned("evaluation.precision=fp32")) == set()
    assert changed(before, planned("evaluation.precision=bf16")) == ALL_EVALUATED


@pytest.mark.parametrize("benchmark", ["ruler", "longbench", "mmlu", "bbh"])
def test_another_template_is_another_unit_with_new_prompts(
    benchmark: str, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = planned()
    monkeypatch.setattr(type(units.BENCHMARKS[benchmark]), "tasks", of_version(benchmark, 7))
    own = {name for name in ALL_EVALUATED | ALL_PREPARED if name.split()[1].startswith(benchmark)}
    assert changed(before, planned()) == own


def test_another_harness_is_another_unit_with_the_same_prompts(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, version = planned(), samples.version
    monkeypatch.setattr(samples, "version", lambda name: "0.4.99" if name == "lm-eval" else version(name))
    assert changed(before, planned()) == ALL_EVALUATED


@pytest.mark.parametrize(
    ("benchmark", "file", "unit"),
    [("mmlu", "dev/anatomy_dev.csv", "mmlu/anatomy"), ("bbh", "snarks.json", "bbh/snarks")],
)
def test_other_data_is_another_unit(
    benchmark: str, file: str, unit: str, planned: Planned, data: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(data / benchmark, tmp_path / "copy"))
    moved = planned(**{benchmark: str(copy)})
    assert changed(planned(), moved) == set(), "where data lies is no identity"
    (copy / file).write_text((copy / file).read_text().replace("1", "2"))
    assert changed(moved, planned(**{benchmark: str(copy)})) == {f"evaluate {unit}"}


def test_other_longbench_data_is_other_prompts(planned: Planned, tmp_path: Path) -> None:
    from tokenweight.evaluation.data import smoke_eval_dir

    copy = Path(shutil.copytree(smoke_eval_dir() / "longbench", tmp_path / "copy"))
    before = planned(longbench=str(copy))
    file = copy / "trec.jsonl"
    file.write_text(file.read_text().replace("e", "a", 1))
    assert changed(before, planned(longbench=str(copy))) == {"prepare longbench/trec", "evaluate longbench/trec"}


def test_another_revision_of_hub_data_is_other_prompts(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(longbench="hub")
    hub = replace(LongBench.hub_data, revision="f" * 40)
    monkeypatch.setattr(LongBench, "hub_data", hub)
    own = {name for name in ALL_EVALUATED | ALL_PREPARED if "longbench" in name}
    assert changed(before, planned(longbench="hub")) == own


# --- Scored again ------------------------------------------------------------------------------


def run(graph: Graph, store: Store) -> list[PlanEntry]:
    plan = schedule(graph, store)
    run_in_order(graph, store, Execution(device="cpu", eval_batch_sequences=2))
    return plan


def told(graph: Graph, store: Store, unit: str) -> tuple[Path, dict[str, Any]]:
    node = next(node for node in graph.artifacts if (node.stage.name, _unit(node)) == ("evaluate", unit))
    return store.path(node.identity), read_record(store.path(node.identity))["facts"]


def of_version(benchmark: str, version: int) -> dict[str, Task]:
    tasks = units.BENCHMARKS[benchmark].tasks.items()
    return {name: replace(task, template_version=version) for name, task in tasks}


def no_model(*arguments: Any) -> None:
    raise AssertionError("a model was loaded")


def test_a_changed_metric_needs_no_model(planned: Planned, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvaluatedModel, "generate_until", lambda self, instances, **_: [PREDICTED for _ in instances])
    before = planned()
    run(before, store)
    monkeypatch.setattr(HFModel, "__init__", no_model)
    for name in ("ruler", "mmlu", "bbh"):
        monkeypatch.setattr(type(units.BENCHMARKS[name]), "metric_version", 99)
    monkeypatch.setattr("tokenweight.evaluation.mmlu.LETTERS", "AAAA")
    after = planned("evaluation.longbench.first_line=thudm")
    assert changed(before, after) == ALL_EVALUATED
    reasons = {step.reason for step in schedule(after, store) if step.artifact.stage.name == "evaluate"}
    assert reasons == {SCORED_AGAIN}
    run(after, store)
    for unit in UNITS:
        (old_dir, old), (new_dir, new) = told(before, store, unit), told(after, store, unit)
        old_rows, new_rows = read_rows(old_dir), read_rows(new_dir)
        assert [(r.doc_id, r.output, r.bos_tokens) for r in new_rows] == [(r.doc_id, r.output, 1) for r in old_rows]
        assert (new["outputs_from"], new["n"], new["n_expected"], new["bos"]) == (old_dir.name, old["n"], old["n"], 1)
        assert new["mean_score"] == sum(row.score for row in new_rows) / len(old_rows)
    assert {row.filtered for row in read_rows(told(after, store, "mmlu/anatomy")[0])} == {"A"}
    filtered = [read_rows(told(graph, store, "longbench/qasper")[0])[0].filtered for graph in (before, after)]
    assert filtered == [" Person", PREDICTED]
    assert {step.action for step in schedule(after, store)} == {"reuse"}


def test_what_asks_the_model_anew_is_not_scored_again(
    planned: Planned, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvaluatedModel, "generate_until", lambda self, instances, **_: [PREDICTED for _ in instances])
    before = planned()
    run(before, store)

    def reasons(graph: Graph) -> dict[str, str]:
        return {
            _unit(step.artifact): step.reason
            for step in schedule(graph, store)
            if step.artifact.stage.name == "evaluate"
        }

    monkeypatch.setattr(Bbh, "metric_version", 99)
    assert reasons(planned())["bbh/snarks"] == SCORED_AGAIN
    assert reasons(planned("evaluation.bbh.max_new_tokens=9"))["bbh/snarks"] == "not in the store"
    with monkeypatch.context() as other:
        other.setattr(Bbh, "tasks", of_version("bbh", 2))
        assert reasons(planned())["bbh/snarks"] == "not in the store"
    directory = told(before, store, "bbh/snarks")[0]
    (directory / "rows.parquet").write_bytes(b"cut short")
    assert reasons(planned())["bbh/snarks"] == "not in the store"


def test_flags_about_prompts_stay(planned: Planned, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EvaluatedModel, "generate_until", lambda self, instances, **_: [i.args[0] + " (A)" for i in instances]
    )
    before = planned()
    run(before, store)
    flags = ["mostly_truncated", "prompt_echoed"]  # three exemplars do not fit 512 tokens
    assert told(before, store, "bbh/snarks")[1]["flags"] == flags
    monkeypatch.setattr(HFModel, "__init__", no_model)
    monkeypatch.setattr(Bbh, "metric_version", 99)
    after = planned()
    run(after, store)
    assert told(after, store, "bbh/snarks")[1]["flags"] == flags


# --- Killed ------------------------------------------------------------------------------------


def test_a_killed_run_leaves_no_record_and_repeats_at_most_one_batch(
    planned: Planned, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the store: what an unfinished unit has is kept in its partial directory, whole units are published."""
    asked: list[str] = []

    def dies_at_the_sixth(self: EvaluatedModel, instances: list[Any], **_: Any) -> list[str]:
        if len(asked) >= 5:
            raise KeyboardInterrupt
        asked.extend(instance.args[0] for instance in instances)
        return [PREDICTED for _ in instances]

    monkeypatch.setattr(HFModel, "batch_size", lambda self, *sizes: 1)
    graph = planned()
    with monkeypatch.context() as killed:
        killed.setattr(EvaluatedModel, "generate_until", dies_at_the_sixth)
        with pytest.raises(KeyboardInterrupt):
            run(graph, store)
    finished = {
        _unit(s.artifact) for s in schedule(graph, store) if s.action == "reuse" and s.artifact.stage.name == "evaluate"
    }
    assert len(finished) == 2  # five prompts of two each
    again: list[str] = []

    def counted(self: EvaluatedModel, instances: list[Any], **_: Any) -> list[str]:
        again.extend(instance.args[0] for instance in instances)
        return [PREDICTED for _ in instances]

    monkeypatch.setattr(EvaluatedModel, "generate_until", counted)
    run(graph, store)
    asking = [unit for unit in UNITS if not unit.startswith("mmlu")]
    assert len(asked) + len(again) == sum(told(graph, store, unit)[1]["n"] for unit in asking) == 7
    assert set(asked).isdisjoint(again)
    assert {step.action for step in schedule(graph, store)} == {"reuse"}
    records = [read_record(store.path(node.identity)) for node in graph.artifacts if node.stage.name == "evaluate"]
    assert all({"rows.parquet", "summary.json"} == set(record["outputs"]) for record in records)
