"""The temporary server of a run: which it is, where it works, and that it ends with its run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import psutil
import pytest

from tokenweight import embedded


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of another process, so that nothing of it stays."""
    monkeypatch.setattr(os, "environ", {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_a_server_that_does_not_answer_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    embedded.prepare()
    assert "PREFECT_API_URL" not in os.environ
    assert "no Prefect server answers at http://127.0.0.1:9/api (PREFECT_API_URL)" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["", "example.org"])
def test_a_shells_proxy_is_not_asked_for_the_loopback(said: str) -> None:
    os.environ |= {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": said, "no_proxy": said}
    embedded.quiet()
    code = "import httpx; print(httpx.get('http://127.0.0.1:{}'))"
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [sys.executable, "-c", code.format(server.server_port)],
            env=os.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        server.shutdown()
    assert "200 OK" in done.stdout, done.stderr
    assert os.environ["no_proxy"].startswith(said)


def test_later_runs_start_from_the_database_of_the_first(tmp_path: Path) -> None:
    homes = []
    for content in (b"", None):
        os.environ.pop("PREFECT_HOME")
        embedded.prepare()
        homes.append(Path(os.environ["PREFECT_HOME"]))
        database = homes[-1] / "prefect.db"
        assert database.exists() == (content is None)
        if content is not None:
            database.write_bytes(content)
        embedded.keep_database()
        embedded.remove_home()
    assert homes[0] != homes[1]
    assert not any(home.exists() for home in homes)


RUN = """
import os, subprocess, sys
from tokenweight import embedded
os.environ.pop("PREFECT_HOME", None)
os.environ.pop("PREFECT_PLUGINS_ENABLED", None)
embedded.prepare()
server = "import prefect, time; print('up', flush=True); time.sleep(600)"
environment = {**os.environ, "PREFECT__SERVER_EPHEMERAL": "1"}
child = subprocess.Popen([sys.executable, "-c", server], env=environment, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().strip(), child.pid, os.environ["PREFECT_HOME"], flush=True)
child.wait()
"""


def test_a_killed_run_takes_its_server_and_its_directory_along() -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN], env=os.environ, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    up, pid, home = run.stdout.readline().split()
    assert (up, Path(home).is_dir()) == ("up", True)
    run.kill()
    run.wait()
    deadline = time.monotonic() + 120
    while psutil.pid_exists(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not Path(home).exists()


INTERRUPTED = """
import subprocess, sys, time
from tokenweight import embedded
{}
with embedded.ended_together():
    code = "import time; print('up', flush=True); time.sleep(600)"
    server = subprocess.Popen([sys.executable, "-c", code, "prefect.server"])
    {}
"""
AFTER_THE_SERVER = "embedded.remove_home = lambda: time.sleep(1)"  # which is gone by then, and the run must not leave
HEARD_LATE = """
embedded._SIGNAL_SECONDS, soon = 60, embedded.call_at_signals
embedded.call_at_signals = lambda call, *numbers: soon(lambda number: time.sleep(2) or call(number), *numbers)
"""


@pytest.mark.parametrize(
    ("number", "given", "meanwhile"),
    [(signal.SIGINT, AFTER_THE_SERVER, "server.wait()"), (signal.SIGTERM, HEARD_LATE, "time.sleep(600)")],
)
def test_a_signal_to_all_ends_a_run_and_what_it_starts_with_one_line(
    number: signal.Signals, given: str, meanwhile: str
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(given, meanwhile)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    os.killpg(run.pid, number)  # as a terminal does, to all of them
    _, err = run.communicate(timeout=300)
    line = "error: interrupted; run the same command again to resume"
    assert (run.returncode, err.strip()) == (128 + number, line)


WITHOUT_SERVER = """
import subprocess, sys, threading, time
import psutil
from tokenweight import embedded
embedded._SIGNAL_SECONDS = 0.1
seen, status = threading.Event(), psutil.Process.status
psutil.Process.status = lambda process: seen.set() or status(process)
with embedded.ended_together():
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "prefect.server"])
    seen.wait()
    server.kill()
    time.sleep(600)
"""


def test_a_run_whose_server_is_killed_says_how_to_resume() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVER], capture_output=True, text=True, timeout=300, check=False
    )
    line = "error: Prefect's temporary server ended; run the same command again to resume"
    assert (done.returncode, done.stderr.strip()) == (1, line)


def test_a_child_that_is_gone_is_no_server_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of git ends while it is looked at: where a run has a server of its own, that is so every half second."""

    class Gone:
        def cmdline(self) -> list[str]:
            raise psutil.NoSuchProcess(1)

    class Server:
        def cmdline(self) -> list[str]:
            return ["python", "-m", "uvicorn", "prefect.server.api.server:create_app"]

    children: list[Gone | Server] = [Gone()]
    monkeypatch.setattr(psutil.Process, "children", lambda process: children)
    assert embedded._temporary_server() is None
    children.append(Server())
    assert embedded._temporary_server() is children[1]
