"""The Slurm worker against a real Slurm: what a flow run's state says is what its job does."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_slurm import wait_for

pytestmark = pytest.mark.slow
WAIT = "wait/wait"


def begun(note: Path) -> int:
    return len(note.read_text().splitlines()) if note.exists() else 0


def test_a_flow_run_is_a_job_with_the_gpu_that_it_asked_for(cluster, slurm, tmp_path) -> None:
    seen = tmp_path / "seen"
    run = cluster.start(
        WAIT,
        {"until": str(tmp_path)},
        gres="gpu:1",
        setup=[f'echo "$SLURM_JOB_NAME $CUDA_VISIBLE_DEVICES $QUOTED" > {seen}'],
        env={"QUOTED": 'it\'s "$HOME"'},
        extra=["--comment=two words"],
        time="10",
    )
    cluster.wait_for(run, "Completed")
    name = cluster.api("GET", f"/flow_runs/{run}")["name"]
    assert seen.read_text() == f'{name} 0 it\'s "$HOME"\n'
    wait_for(lambda: slurm.job(cluster.job(run))["JobState"] == "COMPLETED", "the job to end")
    job = slurm.job(cluster.job(run))
    assert (job["TimeLimit"], job["Requeue"]) == ("00:10:00", "1")
    assert "two words" in slurm.run("scontrol", "show", "job", "--oneliner", cluster.job(run))


def test_a_cancelled_run_that_waits_leaves_the_queue(cluster, slurm, tmp_path) -> None:
    run = cluster.start(WAIT, {"until": str(tmp_path / "never")}, extra=["--hold"])
    wait_for(lambda: cluster.job(run) is not None, "the job")
    cluster.cancel(run)
    cluster.wait_for(run, "Cancelled", seconds=30)
    assert slurm.job(cluster.job(run))["JobState"] == "CANCELLED"


def test_a_cancelled_run_that_runs_ends_its_job(cluster, slurm, tmp_path) -> None:
    note = tmp_path / "note"
    run = cluster.start(WAIT, {"until": str(tmp_path / "never"), "note": str(note)})
    wait_for(lambda: begun(note) == 1, "the flow run to begin")
    cluster.cancel(run)
    cluster.wait_for(run, "Cancelled", seconds=90)
    wait_for(lambda: slurm.queue() == [] and slurm.processes() == [], "the job to end")


def test_a_job_that_cannot_be_submitted_or_cannot_start_says_why(cluster, tmp_path) -> None:
    refused = cluster.start(WAIT, {"until": str(tmp_path)}, partition="no-such-partition")
    broken = cluster.start(WAIT, {"until": str(tmp_path)}, setup=["exit 7"])
    cluster.wait_for(refused, "Crashed")
    assert "invalid partition specified: no-such-partition" in cluster.message(refused)
    cluster.wait_for(broken, "Crashed")
    assert "ended as FAILED on node" in cluster.message(broken)
    assert "exit code 7:0; its output: /" in cluster.message(broken)


def test_a_preempted_run_goes_on_when_there_is_room_again(cluster, slurm, tmp_path) -> None:
    note, until = tmp_path / "note", tmp_path / "until"
    run = cluster.start(WAIT, {"until": str(until), "note": str(note)}, cpus=4, extra=["--nodelist=node0"])
    wait_for(lambda: begun(note) == 1, "the flow run to begin")
    urgent = slurm.run(
        "sbatch", "--parsable", "--partition=urgent", "--nodelist=node0", "--exclusive", f"--output={tmp_path}/urgent",
        "--wrap", f"while ! [ -e {tmp_path}/over ]; do sleep 0.2; done",
    ).strip()  # fmt: skip
    cluster.wait_for(run, "Requeued")
    wait_for(lambda: slurm.job(urgent)["JobState"] == "RUNNING", "the urgent job to run")
    (tmp_path / "over").touch()
    wait_for(lambda: begun(note) == 2, "the flow run to begin again")
    until.touch()
    cluster.wait_for(run, "Completed")


def test_a_run_whose_time_is_up_says_so(cluster, slurm, tmp_path) -> None:
    run = cluster.start(WAIT, {"until": str(tmp_path / "never")}, time="0:20", requeue=False)
    cluster.wait_for(run, "Crashed", seconds=180)
    assert slurm.job(cluster.job(run))["JobState"] == "TIMEOUT"


def test_a_new_worker_takes_care_of_the_jobs_of_one_that_died(cluster, slurm, start_worker, tmp_path) -> None:
    run = cluster.start(WAIT, {"until": str(tmp_path / "never")}, extra=["--hold"])
    wait_for(lambda: cluster.job(run) is not None, "the job")
    start_worker.last().kill()
    start_worker()
    cluster.cancel(run)
    cluster.wait_for(run, "Cancelled", seconds=90)
    assert slurm.job(cluster.job(run))["JobState"] == "CANCELLED"
