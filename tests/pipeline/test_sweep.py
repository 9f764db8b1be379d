"""A sweep for real: one member fails, the others do not, the next run makes that one alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests_pipeline import run

from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.reports.targets.find import sweep_experiment
from tokenweight.tasks.experiments import plan_texts

SETTINGS = ("training.steps=2", "evaluation.perplexity.documents=2")
SWEEP = (
    "sweep",
    "table-3/frozen-sparse",
    "--over",
    "weighting.kappa=0.2,0.4,1",
    "--measures",
    "perplexity",
    "--name",
    "k",
)


@pytest.mark.slow
def test_a_member_fails_and_the_next_run_makes_it_alone(tmp_path: Path) -> None:
    arguments = [*SWEEP, *(part for setting in SETTINGS for part in ("--set", setting))]
    store = Store(tmp_path / "store")
    text = sweep_experiment([SWEEP[1]], [SWEEP[3]], [], ("perplexity",), "k").model_dump_json(
        indent=1, exclude_defaults=True
    )
    ((plan,), _) = plan_texts([text], "smoke", Inputs(settings=SETTINGS), store)
    obstacle = store.partial(plan.graph.trained["table-3/frozen-sparse kappa=0.4"].identity)
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("a file where the training wants a directory")

    failed = run(*arguments, cwd=tmp_path)
    assert failed.returncode == 1
    assert "error: train table-3/frozen-sparse kappa=0.4: NotADirectoryError" in failed.stderr
    first = statuses(tmp_path)
    assert first == {"kappa=0.2": {"complete"}, "kappa=0.4": {"missing"}, "kappa=1": {"complete"}}
    assert "Failed in this run: κ = 0.4" in (tmp_path / "results" / "smoke" / "k.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("record.json")}

    obstacle.unlink()
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set.union(*statuses(tmp_path).values()) == {"complete"}
    after = {path: path.stat().st_mtime_ns for path in store.root.rglob("record.json")}
    assert {path: after[path] for path in before} == before
    made = {path.parent.name for path in after.keys() - before.keys()}
    wanted = {
        artifact.address.partition("/")[2]
        for artifact in plan.graph.part(["table-3/frozen-sparse kappa=0.4"]).artifacts
    }
    assert made == wanted - {path.parent.name for path in before}
    assert (tmp_path / "results" / "smoke" / "k.pdf").read_bytes().startswith(b"%PDF")

    again = run("report", "k", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-2000:]
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("record.json")} == after


def statuses(directory: Path) -> dict[str, set[str]]:
    report = json.loads((directory / "results" / "smoke" / "k.json").read_text())
    return {row["key"]: {cell["status"] for cell in row["cells"]} for row in report["rows"]}
