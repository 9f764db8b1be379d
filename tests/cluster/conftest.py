"""A cluster, a Prefect server and a Slurm worker, for all tests of this folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from local_slurm import LocalSlurm, missing, wait_for

ROOT = Path(__file__).parents[2]
POOL = "cluster"
PREFECT = [sys.executable, "-m", "prefect"]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """Two nodes, idle."""
    if reason := missing():
        pytest.skip(f"NO SLURM HERE, nothing of the cluster is tested: {reason}")
    cluster = LocalSlurm(tmp_path_factory.mktemp("slurm") / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Prefect:
    """A server, and what tests ask of it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def command(self, *arguments: str, cwd: Path | None = None) -> str:
        """`prefect ...`; its output."""
        done = subprocess.run(
            [*PREFECT, "--no-prompt", *arguments], cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=180
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def api(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """A call of the REST API; its JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.environment['PREFECT_API_URL']}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def start(self, deployment: str, parameters: dict[str, Any], **job_variables: Any) -> str:
        """Start a run of FLOW/DEPLOYMENT; its id."""
        found = self.api("GET", f"/deployments/name/{deployment}")
        body = {"parameters": parameters, "job_variables": job_variables, "state": {"type": "SCHEDULED"}}
        return self.api("POST", f"/deployments/{found['id']}/create_flow_run", body)["id"]

    def state(self, run: str) -> str:
        """Name of a run's state."""
        return self.api("GET", f"/flow_runs/{run}")["state"]["name"]

    def states(self, run: str) -> list[str]:
        """Names of all states that a run went through."""
        states = self.api("GET", f"/flow_run_states/?flow_run_id={run}")
        return [state["name"] for state in sorted(states, key=lambda state: state["timestamp"])]

    def message(self, run: str) -> str:
        """What a run's state says."""
        return self.api("GET", f"/flow_runs/{run}")["state"]["message"] or ""

    def job(self, run: str) -> str | None:
        """The Slurm job of a run, once it was submitted."""
        return self.api("GET", f"/flow_runs/{run}")["infrastructure_pid"]

    def cancel(self, run: str) -> None:
        """As the button in the UI does."""
        self.api("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})

    def wait_for(self, run: str, *states: str, seconds: float = 240) -> None:
        """Wait until a run is in one of the states; one that has ended otherwise fails the test."""
        over = {"Completed", "Failed", "Cancelled"}  # a crashed one may be requeued
        try:
            wait_for(lambda: self.state(run) in {*states, *over}, f"{' or '.join(states)}", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the run went through {self.states(run)}: {self.message(run)}") from None
        assert self.state(run) in states, f"the run went through {self.states(run)}: {self.message(run)}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """A Prefect server of its own."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "HF_", "TOKENWEIGHT_"))}
    environment = {
        **kept,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: _answers(f"http://127.0.0.1:{port}/api/health"), "the Prefect server", 180)
        yield Prefect(environment)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@pytest.fixture(scope="session")
def start_worker(
    server: Prefect, slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Any]]:
    """Start a worker of the pool, as a person on a login node does; all are ended at the end."""
    place = tmp_path_factory.mktemp("login")
    command = [*PREFECT, "worker", "start", "--pool", POOL, "--type", "tokenweight-slurm"]
    workers: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        environment = {**slurm.environment, **server.environment, "PATH": slurm.environment["PATH"]}
        with (place / f"worker-{len(workers)}.log").open("w") as log:
            worker = subprocess.Popen(
                command, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        workers.append(worker)
        return worker

    start.last = lambda: workers[-1]  # type: ignore[attr-defined]
    yield start
    for worker in workers:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGTERM)
            worker.wait(60)


@pytest.fixture(scope="session")
def cluster(server: Prefect, slurm: LocalSlurm, start_worker: Callable[[], Any], tmp_path_factory: Any) -> Prefect:
    """The server, with a worker and deployments `wait` and `one-model`."""
    variables = {
        "cpus": 1,
        "poll_seconds": 1,
        "log_dir": str(tmp_path_factory.mktemp("job-logs")),
        "working_dir": str(tmp_path_factory.mktemp("work")),
    }
    folder = tmp_path_factory.mktemp("deployments")
    entries = {
        "wait": f"{Path(__file__).parent / 'waiting_flow.py'}:wait",
        "one-model": "tokenweight.flows.reproduce:reproduce",
    }
    deployments = [
        {"name": name, "entrypoint": entrypoint, "work_pool": {"name": POOL, "job_variables": variables}}
        for name, entrypoint in entries.items()
    ]
    pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}]
    (folder / "prefect.yaml").write_text(json.dumps({"name": "test", "pull": pull, "deployments": deployments}))
    server.command("work-pool", "create", POOL, "--type", "tokenweight-slurm")
    server.command("deploy", "--all", cwd=folder)
    start_worker()
    return server


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
