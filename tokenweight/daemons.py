"""Background processes of `tokenweight server up`: started, found again, ended. Knows no Prefect."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

HOME = Path("server")  # in the project's directory
_STATE = "up.json"
_CLOCK_SECONDS = 60.0  # by which a clock that is set moves the start of a process
_PATIENCE_SECONDS = 20.0  # a flow run that is asked to end writes its state to the server first


def worker_name(pool: str, host: str) -> str:
    """Of the worker that `up` starts: the server keeps it with each run, whose process id alone names no machine."""
    return f"{pool} on {host}"


@dataclass(frozen=True)
class Daemon:
    """A process by its id and start, since ids are used again."""

    role: str
    pid: int
    created: float

    def alive(self) -> bool:
        """Whether it still runs."""
        import psutil

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _CLOCK_SECONDS
            return same and process.status() != psutil.STATUS_ZOMBIE
        return False


@dataclass
class State:
    """What was started in a home, and the server's address."""

    api_url: str
    daemons: list[Daemon] = field(default_factory=list)

    def running(self, role: str) -> bool:
        """Whether a process of this role runs."""
        return any(daemon.role == role and daemon.alive() for daemon in self.daemons)

    def write(self, home: Path) -> None:
        """Put it into the home, whole or not at all."""
        self.daemons = [daemon for daemon in self.daemons if daemon.alive()]
        partial = home / f".{_STATE}"
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.replace(home / _STATE)


def read_state(home: Path) -> State | None:
    """What was started in a home, or None where nothing was, or its server is gone."""
    try:
        content = json.loads((home / _STATE).read_text())
        state = State(content["api_url"], [Daemon(**daemon) for daemon in content["daemons"]])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state if state.running("server") else None


def has_been_up(home: Path) -> bool:
    """Whether a home has a server's database (SQLite's)."""
    return (home / "prefect.db").is_file()


def start(role: str, command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path) -> Daemon:
    """Start a process that outlives this one; its output goes to the end of `log`."""
    import psutil

    # A shell makes what it starts with & ignore SIGINT, children inherit that, and a Prefect worker that ignores SIGINT
    # cannot be ended with SIGTERM either. A handler becomes the default in the child; what is ignored stays ignored.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    return Daemon(role, process.pid, psutil.Process(process.pid).create_time())


def left_over(home: Path) -> list[psutil.Process]:
    """What works in a home without anybody to look after it.

    Everything where the server is gone; else flow runs whose worker is gone, which nobody could cancel, with their children.
    """
    processes = processes_of(home)
    return processes if read_state(home) is None else [process for process in processes if _runs_alone(process)]


def end(processes: Sequence[psutil.Process]) -> None:
    """Ask processes to end, and kill those that do not within some seconds."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(processes, timeout=_PATIENCE_SECONDS)[1]:
        with suppress(psutil.Error):
            process.kill()
            process.wait(10)


def end_all(home: Path, before_servers: Callable[[set[str]], None] | None = None) -> int:
    """End every process that works in a home: workers, then flow runs and their children, then servers.

    They are found by PREFECT_HOME in their environment, so that flow runs whose worker was killed are among them.
    `before_servers` gets the ids of the flow runs that were ended. Returns how many processes there were.
    """
    flow_runs = flow_runs_of(home)
    ended = _end(_is_worker, home)
    flow_runs |= flow_runs_of(home)  # a worker may have begun one meanwhile
    ended += _end(lambda process: not _is_server(process), home)
    if before_servers:
        before_servers(flow_runs)
    ended += _end(lambda process: True, home)
    (home / _STATE).unlink(missing_ok=True)
    return ended


def flow_runs_of(home: Path) -> set[str]:
    """Ids of the flow runs whose processes work in a home."""
    import psutil

    found = set()
    for process in processes_of(home):
        with suppress(psutil.Error):
            found.add(process.environ().get("PREFECT__FLOW_RUN_ID", ""))
    return found - {""}


def _end(these: Callable[[psutil.Process], bool], home: Path) -> int:
    processes = [process for process in processes_of(home) if these(process)]
    end(processes)
    return len(processes)


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process that works in a home, but this one and those that it was started from."""
    import psutil

    me = psutil.Process()
    not_these = {me.pid, *(parent.pid for parent in me.parents())}  # a shell in which PREFECT_HOME was exported
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            works_there = process.environ().get("PREFECT_HOME") == str(home.resolve())
            if works_there and process.pid not in not_these and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _runs_alone(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        if "PREFECT__FLOW_RUN_ID" in process.environ():
            return not any(_is_worker(other) or _is_server(other) for other in [process, *process.parents()])
    return False


def _is_worker(process: psutil.Process) -> bool:
    return "worker start" in _line(process)


def _is_server(process: psutil.Process) -> bool:
    return "server start" in _line(process) or "prefect.server" in _line(process)


def _line(process: psutil.Process) -> str:
    import psutil

    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
