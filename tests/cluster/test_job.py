"""The batch script and what is read of Slurm's answers, without a Slurm."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from prefect.states import Cancelled, Completed, Crashed, Pending, Running
from pydantic import ValidationError

from tokenweight.flows.slurm import SlurmWorker
from tokenweight.flows.slurm.job import GONE, Job, SlurmConfiguration, parse
from tokenweight.flows.slurm.worker import may_run_again

LINE = (
    "JobId=7 JobName=table 3 smoke UserId=root(0) Priority=1 JobState=PENDING Reason=BeginTime Dependency=(null) "
    "Requeue=1 Restarts=2 ExitCode=0:15 NodeList=node[0-1] StdOut=/logs/7.out Comment=JobState=FAILED"
)


def directives(configuration: SlurmConfiguration) -> list[str]:
    """The options of the script, as sbatch takes them apart (much like a shell)."""
    lines = [line for line in configuration.script().splitlines() if line.startswith("#SBATCH ")]
    return [option for line in lines for option in shlex.split(line.removeprefix("#SBATCH "))]


def test_every_variable_becomes_its_option() -> None:
    options = directives(
        SlurmConfiguration(
            name="table-3 smoke: Müller's", partition="gpu", account="me", qos="high", gres="gpu:8", time="1-00:00:00",
            nodes=2, cpus=16, memory="0", working_dir="/data/my work", log_dir="logs", extra=["--comment=a \"b\" # c"],
            stop_seconds_before_end=900,
        )
    )  # fmt: skip
    assert options == [
        "--job-name=table-3-smoke:-M-ller-s",
        "--output=/data/my work/logs/%j.out",
        "--chdir=/data/my work",
        "--open-mode=append",
        "--nodes=2",
        "--partition=gpu",
        "--account=me",
        "--qos=high",
        "--gres=gpu:8",
        "--time=1-00:00:00",
        "--cpus-per-task=16",
        "--mem=0",
        "--requeue",
        "--signal=B:USR1@900",
        '--comment=a "b" # c',
    ]
    assert "--no-requeue" in directives(SlurmConfiguration(requeue=False))


@pytest.mark.parametrize(
    "variables",
    [
        {"partition": "gpu\nrm -rf /"},
        {"extra": ["#SBATCH --exclusive"]},
        {"extra": ["--comment=a\n"]},
        {"modules": ["cuda\nreboot"]},
        {"container_mounts": ["/a:/b\r"]},
        {"stop_seconds_before_end": 900, "requeue": False},
    ],
)
def test_what_would_be_another_script_is_refused(variables: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SlurmConfiguration(**variables)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ""),
        (
            {"container": "/images/my image.sif", "gres": "gpu:1", "container_mounts": ["/data:/data"]},
            "apptainer exec --nv --bind /w:/w --bind /w/logs:/w/logs --bind /data:/data --pwd /w '/images/my image.sif'",
        ),
        (
            {"container": "nvcr.io#nvidia/pytorch:25.09", "container_runtime": "pyxis"},
            "srun --ntasks=1 '--container-image=nvcr.io#nvidia/pytorch:25.09' "
            "--container-mounts=/w:/w,/w/logs:/w/logs --container-workdir=/w",
        ),
    ],
)
def test_containers(variables: dict[str, Any], expected: str) -> None:
    configuration = SlurmConfiguration(working_dir="/w", log_dir="logs", **variables)
    prefix = shlex.split(expected)
    assert configuration.container_command() == prefix
    (line,) = [line for line in configuration.script().splitlines() if line.endswith("execute &")]
    words = shlex.split(line.removesuffix("&"))
    assert words[: len(prefix)] == prefix
    assert words[len(prefix) + 1 :] == ["-m", "prefect", "flow-run", "execute"]


def bash(tmp_path: Path, command: str, **variables: Any) -> subprocess.Popen[str]:
    """The script of a job, as slurmd starts it; scontrol, module and apptainer only tell that they were called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in {
        "scontrol": f'echo "$@" >> {tmp_path}/scontrol\nkill -TERM $PPID',
        "apptainer": f'echo "$@" > {tmp_path}/apptainer\nwhile [ "$1" != image ]; do shift; done\nshift\nexec "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "flow-run").write_text(f"#!/bin/bash\n{command}\n")
    (tmp_path / "flow-run").chmod(0o755)
    (tmp_path / "logs").mkdir()
    configuration = SlurmConfiguration(
        command=str(tmp_path / "flow-run"), working_dir=str(tmp_path), log_dir="logs",
        env={"QUOTED": "it's \"$HOME\" `id`", "PATH": f"{programs}:{os.environ['PATH']}"}, **variables,
    )  # fmt: skip
    return subprocess.Popen(
        ["bash", "-c", configuration.script()], env={**os.environ, "SLURM_JOB_ID": "7"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def test_the_script_runs_the_flow_run_with_its_environment_and_status(tmp_path: Path) -> None:
    setup = ["module() { echo module $*; }", "module load made-by-setup"]
    job = bash(tmp_path, 'echo "$QUOTED $HERE"; exit 5', setup=[*setup, "export HERE=yes"], container="image")
    assert job.communicate(timeout=300)[0] == 'module load made-by-setup\nit\'s "$HOME" `id` yes\n'
    assert job.returncode == 5
    assert "--pwd" in (tmp_path / "apptainer").read_text()


def test_at_term_the_script_waits_for_the_flow_run(tmp_path: Path) -> None:
    saves = f"echo asked; until [ -e {tmp_path}/may-end ]; do sleep 0.05; done; echo saved; exit 3"
    job = bash(tmp_path, f'trap "{saves}" TERM; echo begun; while :; do sleep 0.1; done')
    assert job.stdout is not None
    assert job.stdout.readline() == "begun\n"
    job.send_signal(signal.SIGTERM)
    os.killpg(job.pid, signal.SIGTERM)  # Slurm signals every process
    while job.stdout.readline() != "asked\n":  # bash may tell first what it lost
        assert job.poll() is None
    (tmp_path / "may-end").touch()
    assert job.stdout.read().splitlines()[-1] == "saved"
    assert job.wait(300) == 3


def test_when_time_is_nearly_up_the_flow_run_is_asked_to_stop_and_the_job_goes_back_into_the_queue(
    tmp_path: Path,
) -> None:
    """The stand-in of scontrol ends the job, as the real one does."""
    obeys = (
        'echo begun; until [ -e "$TOKENWEIGHT_STOP_FILE" ]; do sleep 0.05; done; touch "$TOKENWEIGHT_STOP_FILE.obeyed"'
    )
    job = bash(tmp_path, obeys, stop_seconds_before_end=900)
    assert job.stdout is not None
    assert job.stdout.readline() == "begun\n"
    job.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 120
    while not (tmp_path / "scontrol").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (tmp_path / "scontrol").read_text() == "requeue 7\n"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def test_the_answer_of_scontrol() -> None:
    job = parse(LINE)
    assert job == Job("PENDING", "BeginTime", 2, "0:15", "node[0-1]", "/logs/7.out")
    assert job.waits
    assert not job.over
    assert parse(LINE.replace("=PENDING", "=NODE_FAIL")).over
    assert Job(GONE).over
    assert not Job("COMPLETING").over


def test_what_may_run_again_when_its_job_starts_again() -> None:
    assert may_run_again(Running())
    assert may_run_again(Crashed())
    assert not any(may_run_again(state) for state in (Cancelled(), Completed(), Pending()))


def test_prefect_offers_the_worker_and_describes_each_variable() -> None:
    from prefect.workers.base import BaseWorker

    assert BaseWorker.get_worker_class_from_type("tokenweight-slurm") is SlurmWorker
    template = SlurmWorker.get_default_base_job_template()
    fields = template["variables"]["properties"]
    assert {"partition", "account", "qos", "gres", "time", "cpus", "memory", "modules", "container"} <= set(fields)
    assert [name for name, field in fields.items() if not field.get("description")] == []
    assert set(template["job_configuration"]) == set(fields)
