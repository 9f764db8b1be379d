"""Helpers: a project's directory of its own with a Prefect server and `tokenweight serve`, and what runs there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests_pipeline import environment, running_in

from tokenweight.embedded import answers

ROOT = Path(__file__).parents[2]
MODEL = str(ROOT / "tokenweight" / "assets" / "smoke-base")
PREFECT = [sys.executable, "-m", "prefect", "--no-prompt"]
TOKENWEIGHT = [sys.executable, "-c", "from tokenweight.cli import main; main()"]


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
            **environment(directory), "OMP_NUM_THREADS": "1", "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_RUNNER_POLL_FREQUENCY": "2", "PREFECT_SERVER_API_PORT": str(self.port), "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_UI_URL": f"http://127.0.0.1:{self.port}", **settings,
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
        return self._run([*TOKENWEIGHT, *arguments])

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([*PREFECT, *arguments])

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A `prefect` command that is not waited for."""
        return subprocess.Popen(
            [*PREFECT, *arguments], cwd=self.directory, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def start_server(self) -> subprocess.Popen[bytes]:
        """`prefect server start`, when it answers."""
        server = self._background([*PREFECT, "server", "start"], "server.log")
        until(lambda: answers(self.url), 600)
        return server

    def serve(self, *options: str) -> subprocess.Popen[bytes]:
        """`tokenweight serve`, when its deployments are registered."""
        (self.directory / "serve.log").unlink(missing_ok=True)
        serving = self._background([*TOKENWEIGHT, "serve", *options], "serve.log")
        until(lambda: "next, elsewhere" in self.said() or serving.poll() is not None, 600)
        assert serving.poll() is None, self.said()
        return serving

    def said(self) -> str:
        """What `tokenweight serve` and its runs have printed."""
        return (self.directory / "serve.log").read_text()

    def logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in self.directory.glob("*.log"))

    def processes(self) -> list[psutil.Process]:
        """What works in this project, beside its server."""
        found = []
        for process in running_in(self.directory):
            try:
                if "server" not in " ".join(process.cmdline()[:6]):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _background(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.directory / log).open("a") as stream:
            return subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdout=stream, stderr=stream, start_new_session=True
            )

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM, group: bool = False) -> None:
    """Signal a process, or as a terminal does its group, and wait for its end."""
    if process.poll() is None:
        (os.killpg if group else os.kill)(process.pid, number)
    process.wait(300)


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
