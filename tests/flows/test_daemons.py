"""Background processes: found again, and ended with all that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tokenweight.commands.doctor import doctor
from tokenweight.daemons import Daemon, State, end_all, read_state, start
from tokenweight.doctor import left_over

# A flow run's process in a session of its own, as after its worker's death; the role is in its command line.
WORKER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"], start_new_session=True)
print("up", flush=True)
time.sleep(99)
"""


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PREFECT_HOME": str(home)}


def wait_for(log: Path) -> None:
    deadline = time.monotonic() + 60
    while "up" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "up" in log.read_text()


def test_everything_of_a_home_is_ended_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = tmp_path / "server", tmp_path / "other"
    started = []
    for home in (ours, others):
        home.mkdir()
        command = [sys.executable, "-c", WORKER, "worker start"]
        started.append(start("worker", command, environment(home), home / "log", tmp_path))
        wait_for(home / "log")
    orphans = [child.pid for daemon in started for child in psutil.Process(daemon.pid).children()]
    try:
        os.kill(started[0].pid, signal.SIGKILL)  # its child lives on
        psutil.wait_procs([psutil.Process(started[0].pid)], 5)
        assert psutil.pid_exists(orphans[0])
        monkeypatch.chdir(tmp_path)
        assert [process.pid for process in left_over(tmp_path / "store")] == orphans[:1]
        assert end_all(ours) == 1
        assert left_over(tmp_path / "store") == []
        assert not psutil.pid_exists(orphans[0])
        assert started[1].alive()
        assert psutil.pid_exists(orphans[1])
        assert end_all(ours) == 0
    finally:
        end_all(others)


def test_what_is_started_in_the_background_of_a_shell_can_be_interrupted(tmp_path: Path) -> None:
    """A shell without job control starts `command &` with SIGINT ignored, and children inherit that."""
    code = f"""
from pathlib import Path
from tokenweight.daemons import start
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
place = Path({str(tmp_path)!r})
child = "import signal, time; print('up', signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True)"
start("worker", [sys.executable, "-c", child], {{}}, place / "log", place)
"""
    ignoring = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + code
    subprocess.run([sys.executable, "-c", ignoring], check=True, timeout=60)
    wait_for(tmp_path / "log")
    assert (tmp_path / "log").read_text().split() == ["up", "False"]


def test_a_state_without_a_living_server_is_none(tmp_path: Path) -> None:
    me = Daemon("server", os.getpid(), psutil.Process().create_time())
    State("http://127.0.0.1:1/api", [me, Daemon("worker of tokenweight", me.pid, 0.0)]).write(tmp_path)
    state = read_state(tmp_path)
    assert state is not None
    assert state.running("server")
    assert not state.running("worker of tokenweight")  # and `up` starts it again
    for content in ("", "{}", json.dumps({"api_url": "x", "daemons": []})):
        (tmp_path / "up.json").write_text(content)
        assert read_state(tmp_path) is None


def test_a_shell_that_works_in_the_home_is_not_ended_by_its_own_command(tmp_path: Path) -> None:
    end = f"from pathlib import Path; from tokenweight.daemons import end_all; print(end_all(Path({str(tmp_path)!r})))"
    shell = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {end!r}]); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", shell], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "alive"]


def test_doctor_ends_a_flow_run_whose_worker_is_gone_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "server"
    home.mkdir()
    run = {**environment(home), "PREFECT__FLOW_RUN_ID": "7"}
    server = start("server", [sys.executable, "-c", "import time; time.sleep(99)", "server start"],
                   environment(home), home / "log", tmp_path)  # fmt: skip
    workers = []
    for name in ("dead", "alive"):
        log = home / f"{name}-log"
        workers.append(start(f"worker of {name}", [sys.executable, "-c", WORKER, "worker start"], run, log, tmp_path))
        wait_for(log)
    State("http://127.0.0.1:1/api", [server, *workers]).write(home)
    orphans = [child.pid for worker in workers for child in psutil.Process(worker.pid).children()]
    try:
        os.kill(workers[0].pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(workers[0].pid)], 5)
        doctor(tmp_path / "store", end=False, as_json=True)
        found = {row["name"]: row["detail"] for row in json.loads(capsys.readouterr().out)}
        named = set(found)
        assert "flow run 7, without its worker" in found[f"process {orphans[0]}"]
        assert "`tokenweight server up` starts it again" in found["worker of dead"]
        assert "worker of alive" not in named
        assert f"process {orphans[1]}" not in named
        doctor(tmp_path / "store", end=True, as_json=True)
        shown = capsys.readouterr()
        assert shown.err == "processes ended: 1\n"
        assert not any(row["name"].startswith("process ") for row in json.loads(shown.out))
        assert not psutil.pid_exists(orphans[0])
        assert psutil.pid_exists(orphans[1])
        assert server.alive()
    finally:
        end_all(home)
