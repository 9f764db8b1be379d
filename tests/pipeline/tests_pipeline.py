"""Helpers: the real command line in a process of its own, with every socket but the loopback's blocked."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

# Runs the command with sockets blocked as pytest blocks them; the embedded server listens on 127.0.0.1.
OFFLINE_COMMAND = """
import sys
from pytest_socket import socket_allow_hosts
socket_allow_hosts(["127.0.0.1", "::1"], allow_unix_socket=True)
from tokenweight.cli import main
main()
"""

# Small enough for a test, and every stage, weighting and benchmark of Table 3 is in it.
SMALL = {
    "training.steps": "2",
    "evaluation.ruler.lengths_tokens": "[1024, 2048]",
    "evaluation.ruler.samples": "1",
    "evaluation.mmlu.samples": "1",
    "evaluation.perplexity.documents": "2",
    "evaluation.bbh.max_new_tokens": "8",
    "evaluation.longbench.max_new_tokens": "16",
}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def small_settings() -> list[str]:
    return [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", OFFLINE_COMMAND, *arguments]


def environment(home: Path) -> dict[str, str]:
    """No hub, no user's Prefect profile, no proxy: what a laptop on a train has."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "HF_", "TOKENWEIGHT_"))}
    cache = str(
        Path(tempfile.gettempdir()) / "tokenweight-tests-cache"
    )  # a temporary server's first database takes long
    return {**kept, "HOME": str(home), "XDG_CACHE_HOME": cache, "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "1"}


def run(*arguments: str, cwd: Path, timeout: float = 840) -> subprocess.CompletedProcess[str]:
    """Run `tokenweight` with these arguments in a directory."""
    return subprocess.run(
        command(*arguments), cwd=cwd, env=environment(cwd), capture_output=True, text=True, timeout=timeout
    )


def running_in(home: Path) -> list[psutil.Process]:
    """The processes that were started, at whatever remove, with `environment(home)`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HOME") == str(home):
                found.append(process)
    return found


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store in which Table 3 has been reproduced, small."""
    directory = tmp_path_factory.mktemp("workplace")
    done = run("reproduce", "table-3", *small_settings(), cwd=directory)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return directory


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command without waiting; what still runs at the end is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
        with (cwd / f"log-{len(processes)}").open("w") as log:
            process = subprocess.Popen(
                command(*arguments), cwd=cwd, env=environment(cwd), stdout=log, stderr=log, text=True
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
