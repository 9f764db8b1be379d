"""Twelve recipes as twelve jobs of a real Slurm: one fails, one is cancelled, a node is lost; a rerun makes what lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_slurm import LocalSlurm, wait_for

from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs, load, names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
TRAIN = "reproduce/one-model"
RECIPES = [name for name in names() if name.startswith(("table-3/", "table-4/"))]
JUDGED = ["evaluation.perplexity.documents=1", "evaluation.perplexity.lengths_tokens=[1024]"]


def settings(recipe: str, steps: int = 2) -> list[str]:
    """As little as shows which stage ran."""
    trained = [f"training.steps={steps}", "training.sequences_per_step=2", f"chunking.sequences={2 * steps}"]
    return JUDGED if "no-train" in recipe else [*JUDGED, *trained]


FAILS, CANCELLED = "table-4/ppmi", "table-3/no-train-8k"


def parameters(store: Path, recipe: str, steps: int = 2) -> dict[str, Any]:
    return {"experiment": f"{recipe}@perplexity", "store": str(store), "settings": settings(recipe, steps)}


def unfinished(store: Path) -> list[str]:
    """The recipes of which the store lacks something."""
    place = Store(store)
    graphs = {
        name: Planner(place).graph([load(name, "smoke", Inputs(settings=tuple(settings(name))))], ("perplexity",))
        for name in RECIPES
    }
    return [name for name, graph in graphs.items() if any(step.action != "reuse" for step in schedule(graph, place))]


def records(store: Path) -> dict[str, str]:
    """When each artifact was made."""
    return {str(file): json.loads(file.read_text())["started"] for file in store.glob("*/*/record.json")}


def jobs_on(slurm: LocalSlurm, node: str) -> list[str]:
    return slurm.run("squeue", "--noheader", "--states=RUNNING", "--nodelist", node, "--format", "%i").split()


def test_a_sweep_survives_a_failure_a_cancellation_and_the_loss_of_a_node(cluster, slurm, tmp_path) -> None:
    store = tmp_path / "store"
    assert len(RECIPES) == 12
    variables = {"cpus": 4}  # one job a node
    broken = {"cpus": 4, "setup": ["exit 1"]}
    runs = {name: cluster.start(TRAIN, parameters(store, name), **(broken if name == FAILS else variables))
            for name in RECIPES if name != CANCELLED}  # fmt: skip
    runs[CANCELLED] = cluster.start(TRAIN, parameters(store, CANCELLED), **variables, extra=["--nice=1000"])
    wait_for(lambda: cluster.job(runs[CANCELLED]) is not None, "all jobs", 180)
    cluster.cancel(runs[CANCELLED])

    wait_for(lambda: len(records(store)) >= 2 and jobs_on(slurm, "node1") != [], "the sweep to run on both nodes", 600)
    lost = jobs_on(slurm, "node1")
    slurm.lose("node1")
    wait_for(lambda: "down" in slurm.node_state("node1"), "Slurm to notice")
    restarted = [name for name, run in runs.items() if cluster.job(run) in lost]
    assert len(restarted) == 1
    slurm.start_node("node1")

    ends = {FAILS: "Crashed", CANCELLED: "Cancelled"}
    for name, run in runs.items():
        cluster.wait_for(run, ends.get(name, "Completed"), seconds=1800)
    assert "Requeued" in cluster.states(runs[restarted[0]])
    assert unfinished(store) == [CANCELLED, FAILS]

    before = records(store)
    again = {name: cluster.start(TRAIN, parameters(store, name), **variables) for name in unfinished(store)}
    for run in again.values():
        cluster.wait_for(run, "Completed", seconds=900)
    assert unfinished(store) == []
    after = records(store)
    assert {file: after[file] for file in before} == before
    made = sorted(str(Path(file).parent.relative_to(store)).split("/")[0] for file in set(after) - set(before))
    assert made.count("train") == 1
    wait_for(lambda: slurm.queue() == [] and slurm.processes() == [], "the last job to end")


def test_a_training_whose_time_is_nearly_up_makes_a_checkpoint_and_goes_on_later(cluster, slurm, tmp_path) -> None:
    """The signal is the one that Slurm sends by --signal=B:USR1@SECONDS."""
    store = tmp_path / "store"
    run = cluster.start(
        TRAIN,
        {**parameters(store, "table-3/uniform", steps=24), "execution": ["save_every_steps=1000"]},
        time="60",
        stop_seconds_before_end=120,
    )
    lines = lambda: [line for file in store.glob("train/.*.partial/metrics.jsonl") for line in file.open()]  # noqa: E731
    wait_for(lambda: len(lines()) >= 3, "some steps", 600)
    slurm.run("scancel", "--signal=USR1", "--batch", cluster.job(run))
    cluster.wait_for(run, "Requeued")
    (checkpoint,) = store.glob("train/.*.partial/checkpoints/checkpoint-*")
    cluster.wait_for(run, "Completed", seconds=900)
    (record,) = [json.loads(file.read_text()) for file in store.glob("train/*/record.json")]
    assert record["facts"]["resumed_from_step"] == int(checkpoint.name.removeprefix("checkpoint-"))
    assert "Failed" not in cluster.states(run)
    assert "Crashed" not in cluster.states(run)


def test_the_sweep_flow_makes_jobs_of_its_members_and_none_of_finished_ones(cluster, tmp_path) -> None:
    parameters = {
        "experiment": "name: k\nbenchmarks: [perplexity]\n"
        "rows: [{recipe: table-3/unfrozen-sparse, over: {weighting.kappa: [0.2, 0.4]}}]\n",
        "pool": "cluster",
        "store": str(tmp_path / "store"),
        "out": str(tmp_path / "out"),
        "settings": settings("table-3/unfrozen-sparse"),
    }
    code = f"from tokenweight.flows.reproduce import reproduce; reproduce(**{parameters!r})"

    def sweep() -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], env=cluster.environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def jobs() -> int:
        chosen = {"flows": {"name": {"any_": ["reproduce"]}}}
        return sum(run["infrastructure_pid"] is not None for run in cluster.api("POST", "/flow_runs/filter", chosen))

    before = jobs()  # of other tests, on the same server
    assert "2 models, 2 of them to make" in sweep()
    assert jobs() == before + 3  # what both need first
    assert len(list((tmp_path / "store" / "train").glob("[!.]*"))) == 2
    assert "2 models, 0 of them to make" in sweep()
    assert jobs() == before + 3
