"""Flows without a server: their functions called as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.cache_policies import NO_CACHE
from prefect.logging import disable_run_logger

from tokenweight.errors import StageError, UserError
from tokenweight.flows import reproduce as flows
from tokenweight.flows.evaluate import evaluate
from tokenweight.flows.reproduce import Outcome, reproduce
from tokenweight.flows.runtimes import reproduce_table_6
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Store
from tokenweight.tasks import task_runs
from tokenweight.tasks.task_runs import make

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / "tokenweight" / "assets" / "smoke-base")


def test_table_6_of_the_repository_is_rendered_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    written = reproduce_table_6.fn(out=tmp_path)
    table = Path(written["md"]).read_text()
    assert "ZeRO-3" in table
    assert "1.178 (1.27" in table  # benchmarks/results/everything/llama3-8b-two.json; the paper's
    assert set(written) >= {"md", "tex", "csv", "json"}


def test_measurements_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"names no file.*benchmarks/training_cost\.py"):
        reproduce_table_6.fn(measurements=[str(tmp_path / "*.json")], out=tmp_path)


def test_evaluate_refuses_what_the_command_refuses(tmp_path: Path) -> None:
    place = {"store": tmp_path / "store", "out": tmp_path}
    with pytest.raises(UserError, match="works only with --backend vllm"):
        evaluate.fn(models=[MODEL], scale="smoke", tensor_parallel=2, **place)
    with pytest.raises(UserError, match="is of one model"):
        evaluate.fn(models=["a", "b"], revision="main", **place)
    with pytest.raises(UserError, match="benchmarks phrase: 'phrase' is unknown; choose one of ruler"):
        evaluate.fn(models=[MODEL], scale="smoke", benchmarks=["phrase"], **place)
    with pytest.raises(UserError, match="--endpoint: is missing"):
        evaluate.fn(models=[MODEL], scale="smoke", benchmarks=["ruler"], backend="endpoint", **place)


def test_reproduce_refuses_an_empty_experiment(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="experiment: is empty; give a target such as table-3"):
        reproduce.fn("  ", store=tmp_path / "store", out=tmp_path)
    with pytest.raises(UserError, match=r"experiment: it's\.yaml has an open quote; close it"):
        reproduce.fn("it's.yaml", store=tmp_path / "store", out=tmp_path)


def test_evaluate_runs_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(
        flows, "run_graph", lambda graphs, store, execution, **_: ran.append((graphs[0], execution)) or Outcome()
    )
    with disable_run_logger(), pytest.raises(StageError, match="has no record of it"):  # a stub leaves none
        evaluate.fn(models=[MODEL], scale="smoke", benchmarks=["mmlu"], limit=1, store=tmp_path / "s", out=tmp_path)
    (graph, execution) = ran[0]
    assert {node.stage.unit.benchmark for nodes in graph.evaluations.values() for node in nodes} == {"mmlu"}
    assert execution.gpus == 1


def test_a_table_is_published_with_its_files_checkpoints_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: dict[str, str] = {}
    monkeypatch.setattr(task_runs, "create_markdown_artifact", lambda text, key, description: made.update({key: text}))
    files = {name: tmp_path / f"table-3{end}" for name, end in (("md", ".md"), ("training.png", "-training.png"))}
    files["md"].write_text("| a |\n| --- |\n| 1 |\n")
    files["training.png"].write_bytes(b"PNG")
    store, identity = Store(tmp_path / "store"), Identity("train", 1, "uniform", {"seed": 1}, {})
    store.path(identity).mkdir(parents=True)
    monkeypatch.setattr(task_runs, "has_server", lambda: False)
    task_runs.publish("table-3-smoke", "Table 3", files, store, {"uniform": identity})
    assert made == {}  # an embedded server ends with its run
    monkeypatch.setattr(task_runs, "has_server", lambda: True)
    task_runs.publish("table-3-smoke", "Table 3", files, store, {"uniform": identity})
    assert "| 1 |" in made["table-3-smoke"]
    assert f"[{identity.address}]({store.path(identity).as_uri()})" in made["table-3-smoke"]
    assert "data:image/png;base64,UE5H" in made["table-3-smoke-figures"]
    task_runs.publish("table-3-My_scale", "Table 3", files)
    assert set(made) == {f"table-3-{scale}{end}" for scale in ("smoke", "my-scale") for end in ("", "-figures")}
    monkeypatch.setattr(task_runs, "LARGEST_PICTURE_BYTES", 2)
    task_runs.publish("table-3-smoke", "Table 3", files)
    assert "base64" not in made["table-3-smoke-figures"]


def test_the_store_decides_what_is_made() -> None:
    """Prefect's own cache never does: its keys differ between runs, and it does not look into the store."""
    assert make.cache_policy is NO_CACHE
    assert not make.persist_result
