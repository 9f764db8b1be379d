"""Helpers: a project's directory of its own with `tokenweight server up` in it, and what runs there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests_pipeline import environment

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / "tokenweight" / "assets" / "smoke-base")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Project:
    """A directory as a newcomer's checkout: prefect.yaml, and the table of pyproject.toml that enables the plugin."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.environment = {
            **environment(directory), "OMP_NUM_THREADS": "1", "PREFECT_WORKER_QUERY_SECONDS": "2", **settings,
        }  # fmt: skip
        (directory / "pyproject.toml").write_text("[tool.prefect.plugins]\nenabled = true\n")
        self.deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def write(self, kept: Iterable[str], *more: dict[str, Any]) -> None:
        """prefect.yaml with some of the repository's deployments, and others."""
        entries = [entry for entry in self.deployments["deployments"] if entry["name"] in set(kept)]
        content = {**self.deployments, "deployments": [*entries, *more]}
        (self.directory / "prefect.yaml").write_text(yaml.safe_dump(content))

    def entry(self, name: str, /, **changed: Any) -> dict[str, Any]:
        """A deployment of the repository, changed."""
        return {**next(one for one in self.deployments["deployments"] if one["name"] == name), **changed}

    def tokenweight(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        code = "from tokenweight.cli import main; main()"
        return self._run([sys.executable, "-c", code, *arguments])

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, "-m", "prefect", "--no-prompt", *arguments])

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A `prefect` command that is not waited for."""
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments], cwd=self.directory, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def up(self, *options: str) -> str:
        done = self.tokenweight("server", "up", "--port", str(self.port), *options)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def down(self) -> None:
        done = self.tokenweight("server", "down")
        assert done.returncode == 0, done.stdout + done.stderr

    def logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in self.directory.glob("server/*.log"))

    def processes(self) -> list[psutil.Process]:
        """What works in this project's server home."""
        home, found = str((self.directory / "server").resolve()), []
        for process in psutil.process_iter():
            try:
                if process.environ().get("PREFECT_HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )


def parameters(**given: Any) -> list[str]:
    """`--param` for each, as JSON."""
    return [part for key, value in given.items() for part in ("--param", f"{key}={json.dumps(value)}")]


def until(true: Callable[[], Any], seconds: float = 300) -> Any:
    """What a call answers as soon as that is something; TimeoutError after so long without."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := true():
            return answer
        time.sleep(1)
    raise TimeoutError


def kill(process: psutil.Process) -> None:
    """As the system does where memory is short."""
    os.kill(process.pid, 9)
