"""A sweep with its members as jobs of a real Slurm: one of twelve fails, the next run makes that one alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import POOL
from local_slurm import LocalSlurm, wait_for

from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.reports.targets.find import sweep_experiment
from tokenweight.tasks.experiments import plan_texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
RECIPE = "table-3/frozen-sparse"
OVER = ["weighting.kappa=0.1,0.2,0.3,0.4,0.6,0.8", "seed=0,1"]
EXPERIMENT = sweep_experiment([RECIPE], OVER, [], ["perplexity"], "k").model_dump_json(indent=1, exclude_defaults=True)
SETTINGS = [
    "training.steps=2",
    "training.sequences_per_step=2",
    "evaluation.perplexity.documents=1",
    "evaluation.perplexity.lengths_tokens=[1024]",
]
RUN = "import json, sys; from tokenweight.flows.reproduce import reproduce; reproduce(**json.loads(sys.argv[1]))"


def plan(store: Path) -> ResolvedExperiment:
    ((planned,), _) = plan_texts([EXPERIMENT], "smoke", Inputs(settings=tuple(SETTINGS)), Store(store))
    return planned


def sweep(cluster: Any, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the sweep as its own flow run, whose members Slurm runs; its table is in `directory`."""
    parameters = {
        "experiment": EXPERIMENT, "pool": POOL, "at_once": 12,
        "settings": SETTINGS, "store": str(directory / "store"), "out": str(directory / "results"), "figures": False,
    }  # fmt: skip
    command = [sys.executable, "-c", RUN, json.dumps(parameters)]
    return subprocess.run(
        command, cwd=directory, env=cluster.environment, capture_output=True, text=True, timeout=1800, check=False
    )


def statuses(directory: Path) -> list[str]:
    report = json.loads((directory / "results" / "smoke" / "k.json").read_text())
    return [cell["status"] for row in report["rows"] for cell in row["cells"]]


def test_twelve_members_one_fails_and_the_next_run_makes_it_alone(cluster, slurm: LocalSlurm, tmp_path) -> None:
    planned, store = plan(tmp_path / "store"), Store(tmp_path / "store")
    assert len(planned.graph.runs) == 12
    failing = next(name for name in planned.graph.trained if "0.3" in name)
    obstacle = store.partial(planned.graph.trained[failing].identity)
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where the training wants a directory")

    first = sweep(cluster, tmp_path)
    assert first.returncode != 0
    assert "1 of 12 models failed" in first.stdout + first.stderr
    found = statuses(tmp_path)
    assert (found.count("complete"), found.count("missing")) == (11 * len(found) // 12, len(found) // 12)
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("record.json")}

    obstacle.unlink()
    second = sweep(cluster, tmp_path)
    assert second.returncode == 0, second.stderr[-2000:]
    assert set(statuses(tmp_path)) == {"complete"}
    after = {path: path.stat().st_mtime_ns for path in store.root.rglob("record.json")}
    assert {path: after[path] for path in before} == before
    stages = sorted(path.parent.parent.name for path in after.keys() - before.keys())
    assert stages.count("train") == 1
    assert set(stages) <= {"train", "evaluate"}
    wait_for(lambda: slurm.queue() == [], "the last job to end")
