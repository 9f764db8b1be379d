"""`prefect deployment run reproduce-table-3/reproduce-table-3` against a local server and a process worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_pipeline import SMALL, environment

ROOT = Path(__file__).parents[2]
PREFECT = [sys.executable, "-m", "prefect"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment of a running server with a process work pool `tokenweight`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        **environment(tmp_path),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PWD": str(ROOT),
    }
    start = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(start, env=settings, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/health")
        subprocess.run(
            [*PREFECT, "work-pool", "create", "tokenweight", "--type", "process"], env=settings, check=True, timeout=120
        )
        yield settings
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise TimeoutError(url)


@pytest.mark.slow
def test_a_deployment_runs_on_a_worker(workplace: Path, server: dict[str, str], tmp_path: Path) -> None:
    deployed = subprocess.run(
        [*PREFECT, "--no-prompt", "deploy", "--all"], cwd=ROOT, env=server, capture_output=True, text=True, timeout=180
    )
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    worker = subprocess.Popen(
        [*PREFECT, "worker", "start", "--pool", "tokenweight"], env=server, start_new_session=True
    )
    try:
        parameters = {
            "scale": "smoke",
            "store": str(workplace / "store"),
            "out": str(tmp_path / "out"),
            "settings": [f"{key}={value}" for key, value in SMALL.items()],
        }
        done = subprocess.run(
            [*PREFECT, "deployment", "run", "reproduce-table-3/reproduce-table-3", "--watch"]
            + [part for key, value in parameters.items() for part in ("--param", f"{key}={json.dumps(value)}")],
            env=server,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(60)
    again = json.loads((tmp_path / "out" / "table-3.json").read_text())
    assert again == json.loads((workplace / "results" / "table-3.json").read_text())
