"""Table 3 from nothing, by the command that a user types."""

import csv
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests_pipeline import SMALL, command, environment, run, running_in, small_settings

Start = Callable[..., "subprocess.Popen[str]"]


def records(store: Path, stage: str) -> dict[str, int]:
    """Artifact -> when its record was written (ns)."""
    return {path.parent.name: path.stat().st_mtime_ns for path in (store / stage).glob("*/record.json")}


def cells(workplace: Path, target: str) -> list[dict[str, str]]:
    with (workplace / "results" / "smoke" / f"{target}.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_every_cell_that_the_paper_fills_is_filled_from_records(workplace: Path) -> None:
    table = cells(workplace, "table-3")
    assert len({cell["row"] for cell in table}) == 8
    wanted = [cell for cell in table if cell["status"] != "not_in_paper"]
    assert [cell for cell in wanted if cell["status"] != "complete"] == []
    assert all(float(cell["value"]) >= 0 and int(cell["n"]) > 0 for cell in wanted)
    written = (workplace / "results" / "smoke").glob("table-3.*")
    assert {path.suffix for path in written} == {".md", ".tex", ".csv", ".json"}


@pytest.mark.slow
def test_each_stage_ran_once_for_all_rows_that_share_it(workplace: Path) -> None:
    store = workplace / "store"
    assert {stage: len(records(store, stage)) for stage in ("chunk", "score", "extend", "train")} == {
        "chunk": 2,  # the novel per document, and by LCDE
        "score": 1,  # both frozen rows
        "extend": 1,
        "train": 6,
    }


@pytest.mark.slow
def test_training_weighted_what_it_should(workplace: Path) -> None:
    shares = {}
    for path in (workplace / "store" / "train").glob("*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(lines) == int(SMALL["training.steps"])
        shares[path.parent.name.rpartition("-4096-")[2].rpartition("-")[0]] = lines[-1]["zero_weight_share"]
    assert abs(shares["unfrozen-sparse-0.2"] - 0.8) < 0.001
    assert abs(shares["frozen-sparse-0.4"] - 0.6) < 0.001
    assert shares["uniform"] == 0


@pytest.mark.slow
def test_a_second_run_does_no_work_and_says_so(workplace: Path) -> None:
    before = {stage: records(workplace / "store", stage) for stage in ("train", "evaluate")}
    done = run("reproduce", "table-3", *small_settings(), cwd=workplace)
    assert done.returncode == 0
    assert "nothing to run" in done.stdout
    assert {stage: records(workplace / "store", stage) for stage in before} == before


@pytest.mark.slow
def test_plan_and_report_read_the_store_only(workplace: Path) -> None:
    plan = json.loads(run("plan", "table-3", *small_settings(), "--json", cwd=workplace).stdout)
    assert {artifact["action"] for artifact in plan["artifacts"]} == {"reuse"}
    for artifact in plan["artifacts"]:
        if artifact["stage"] in ("chunk", "score", "train"):  # beside them lie records, configuration, tokenizer
            files = (workplace / "store" / artifact["address"]).rglob("*")
            taken = sum(file.stat().st_size for file in files if file.is_file())
            assert 0 <= taken - artifact["cost"]["disk_bytes"] < 500_000, artifact["address"]
    done = run("report", "table-3", *small_settings(), "--out", "again", cwd=workplace)
    assert done.returncode == 0
    assert (workplace / "again" / "smoke" / "table-3.md").read_text() == (
        workplace / "results" / "smoke" / "table-3.md"
    ).read_text()


def test_a_report_of_an_empty_store_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = run("report", "table-3", "--store", "elsewhere", "--out", "empty", cwd=tmp_path)
    assert done.returncode == 1
    assert "has no record of it (not evaluated yet); run tokenweight reproduce table-3 --scale smoke" in done.stderr
    assert not (tmp_path / "empty").exists()


@pytest.mark.slow
def test_two_runs_at_once_share_the_work_and_another_table_trains_nothing(workplace: Path, started: Start) -> None:
    trained = records(workplace / "store", "train")
    both = [started("reproduce", "table-9", *small_settings(), "--out", f"out-{i}", cwd=workplace) for i in range(2)]
    assert [process.wait(600) for process in both] == [0, 0], (workplace / "log-0").read_text()[-2000:]
    tables = [(workplace / f"out-{i}" / "smoke" / "table-9.csv").read_text() for i in range(2)]
    assert tables[0] == tables[1]
    assert records(workplace / "store", "train") == trained
    assert list((workplace / "store" / "evaluate").glob(".*.partial")) == []


@pytest.mark.slow  # tests/flows/test_run.py kills a run and resumes it, small
def test_a_killed_run_is_completed_by_the_next(workplace: Path, started: Start) -> None:
    store = workplace / "store"
    before = set(records(store, "evaluate"))
    victim = started("reproduce", "table-10", *small_settings(), cwd=workplace)
    deadline = time.monotonic() + 600
    while not (made := {k: v for k, v in records(store, "evaluate").items() if k not in before}):
        assert victim.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    wait_for_the_end_of_all(workplace)
    done = run("reproduce", "table-10", *small_settings(), cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    after = records(store, "evaluate")
    assert {key: after[key] for key in made} == made
    assert {cell["status"] for cell in cells(workplace, "table-10")} == {"complete"}


def wait_for_the_end_of_all(workplace: Path) -> None:
    """A run that is killed with -9 takes all its processes along."""
    deadline = time.monotonic() + 120
    while others := running_in(workplace):
        assert time.monotonic() < deadline, others
        time.sleep(0.2)


@pytest.mark.slow  # tests/training/test_resume.py has the training alone
def test_an_interrupted_training_resumes_from_its_checkpoint(workplace: Path, started: Start) -> None:
    """Killed in the middle of training; the next run repeats only the steps since the last checkpoint."""
    settings = ["--set", "training.steps=12", "--set", "evaluation.perplexity.documents=1"]
    settings += ["--set", "evaluation.perplexity.lengths_tokens=[1024]"]
    trains = workplace / "store" / "train"
    victim = started("reproduce", "table-9", *settings, "--out", "cut", cwd=workplace)
    deadline = time.monotonic() + 600
    while not any(len(file.read_text().splitlines()) > 9 for file in trains.glob(".*.partial/metrics.jsonl")):
        assert victim.poll() is None, (workplace / "log-0").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    wait_for_the_end_of_all(workplace)
    partial = next(
        file.parent for file in trains.glob(".*.partial/metrics.jsonl") if len(file.read_text().splitlines()) > 9
    )
    done = run("reproduce", "table-9", *settings, "--out", "cut", cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    finished = trains / partial.name.removeprefix(".").removesuffix(".partial")
    steps = [json.loads(line)["step"] for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 13))
    assert json.loads((finished / "record.json").read_text())["facts"]["resumed_from_step"] == 8


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_to_the_group_ends_the_run_in_one_line(signum: signal.Signals, tmp_path: Path) -> None:
    """What a terminal's Ctrl-C, Slurm or `timeout` do: the embedded server is hit too."""
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command("reproduce", "table-9", "--set", "evaluation.perplexity.documents=1"),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    deadline = time.monotonic() + 600
    while "Beginning flow run" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(process.pid, signum)
    assert process.wait(300) == 128 + signum
    assert log.read_text().endswith("error: interrupted; run the same command again to resume\n")
    assert "Traceback" not in log.read_text()
