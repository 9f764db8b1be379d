"""The embedded server's homes in a store: what a killed run left is ended and removed, what others use is not touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tokenweight import embedded

SERVER = "import sys, time; print('up', flush=True); time.sleep(99)"
GONE = "4194305"  # above Linux's largest process id


def server_in(home: Path) -> subprocess.Popen[str]:
    """A process that looks like an embedded server of this home."""
    home.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, "prefect.server.api"], env={**os.environ, "PREFECT_HOME": str(home.resolve())},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_server_that_does_not_answer_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_PLUGINS_ENABLED", "false")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    embedded.prepare(tmp_path)
    assert "PREFECT_API_URL" not in os.environ
    assert "no Prefect server answers at http://127.0.0.1:9/api (PREFECT_API_URL)" in capsys.readouterr().err


def test_homes_of_other_machines_are_left_alone(tmp_path: Path) -> None:
    mine, other = tmp_path / f"{embedded._OWN}{GONE}", tmp_path / f"prefect-of-node-17-{GONE}"
    for home in (mine, other):
        home.mkdir()
    embedded._remove_leftovers(tmp_path)
    assert not mine.exists()
    assert other.exists()


def test_a_server_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules[__name__], "SERVER", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SERVER
    )
    wait = psutil.Process.wait
    monkeypatch.setattr(psutil.Process, "wait", lambda self, timeout=None: wait(self, 0.5))
    deaf = server_in(tmp_path / "prefect")
    embedded._end_servers(tmp_path / "prefect")
    assert not psutil.pid_exists(deaf.pid)
    deaf.wait()
