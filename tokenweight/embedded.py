"""Prefect's embedded server for runs without one: quiet, offline, in the store; call `prepare` before importing Prefect."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from tokenweight.servers import answers
from tokenweight.training.stopping import stop_all

if TYPE_CHECKING:
    import psutil

_QUIET = {
    "GOMP_SPINCOUNT": "20000",  # threads that spin long while they wait cost a busy machine several times the work
    # Asked for GPUs, torch must not start CUDA: a run that has chosen some says so in CUDA_VISIBLE_DEVICES afterwards.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "DO_NOT_TRACK": "1",  # offline, Prefect's analytics print errors
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # 20 s is too short for two busy cores
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
}

_LONGER_THAN_THE_END_TAKES = 60  # seconds
_OWN = f"prefect-of-{socket.gethostname()}-"  # home of a second run at the same time, with its machine and process id


def quiet() -> None:
    """Settings for every run, before torch and Prefect are imported; what the user has set stays."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def prepare(store_root: Path) -> None:
    """Choose PREFECT_HOME inside the store, unless the user names a server that answers, or a home.

    Two runs at once get a home each: the embedded server's SQLite file is for one server.
    """
    quiet()
    os.environ.setdefault("PREFECT_PLUGINS_ENABLED", "false")  # ours is for people's own `prefect` commands
    if url := os.environ.get("PREFECT_API_URL"):
        if answers(url):
            return
        print(f"no Prefect server answers at {url} (PREFECT_API_URL); this run brings its own", file=sys.stderr)
        del os.environ["PREFECT_API_URL"]
    if os.environ.get("PREFECT_HOME"):
        return
    store_root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(store_root / "prefect.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        home = store_root / f"{_OWN}{os.getpid()}"
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    else:
        home = store_root / "prefect"
        atexit.register(lock.release)
        _end_servers(home)  # nobody holds the lock: a server of this home is left over from a killed run
    os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")  # nobody reads them there after the run
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "2")  # a server that died with us is not waited for
    _remove_leftovers(store_root)
    home.mkdir(exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home.resolve())


at_signal: list[Callable[[bool], None]] = []  # ends a run's workers; called with whether they may save a step


def end_at_signal() -> None:
    """Let Ctrl-C and SIGTERM end the run and its children at once; at SIGTERM a launched training may save its step.

    Both often reach the whole process group, the embedded server too, and Prefect would wait minutes for that.
    Nothing is lost: an interrupted stage resumes in the next run, as after a kill. A thread waits for the signals,
    because Prefect puts handlers of its own in place.
    """

    def end(signum: int) -> None:
        logging.disable(logging.CRITICAL)  # what fails now that the server was hit too is nobody's matter
        for end_workers in tuple(at_signal):
            end_workers(signum == signal.SIGTERM)  # by a scheduler, which gives some seconds; Ctrl-C is for now
        _end_children()
        print("\nerror: interrupted; run the same command again to resume", file=sys.stderr, flush=True)

    _call_at_signal(end)
    # Prefect ends its own handling with a SIGTERM to itself: whoever gets it waits for the thread's clean end.
    signal.signal(signal.SIGTERM, lambda signum, frame: time.sleep(_LONGER_THAN_THE_END_TAKES))


def end_worker_at_signal() -> None:
    """The same in a worker process, whose launched training may save its step at SIGTERM; it reports to nobody."""

    def end(signum: int) -> None:
        if signum == signal.SIGTERM:
            stop_all()
        _end_children()

    _call_at_signal(end)


def _call_at_signal(end: Callable[[int], None]) -> None:
    """At SIGINT or SIGTERM call `end` in a thread, then leave the process."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda signum, frame: None)

    def wait(_keep_open: socket.socket) -> None:
        while (signum := ours.recv(1)[0]) not in (signal.SIGINT, signal.SIGTERM):
            pass
        end(signum)
        os._exit(128 + signum)

    threading.Thread(target=wait, args=(theirs,), name="signals", daemon=True).start()


def _end_children() -> None:
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.Error):
            child.terminate()
    for child in psutil.wait_procs(children, timeout=5)[1]:
        with suppress(psutil.Error):
            child.kill()


def _remove_leftovers(store_root: Path) -> None:
    """End the servers and remove the homes of second runs that were killed."""
    for home in filter(_is_left_over, store_root.glob(f"{_OWN}*")):
        _end_servers(home)
        shutil.rmtree(home, ignore_errors=True)


def _is_left_over(home: Path) -> bool:
    """Whether the second run whose home this is has ended."""
    import psutil

    pid = home.name.removeprefix(_OWN)
    return pid.isdigit() and not psutil.pid_exists(int(pid))


def _end_servers(home: Path) -> None:
    """End the embedded servers that work in a home (they outlive a flow that is killed with -9)."""
    import psutil

    for server in _servers(home):
        with suppress(psutil.Error):
            server.terminate()
            try:
                server.wait(10)
            except psutil.TimeoutExpired:  # the next one would open the same database
                server.kill()
                server.wait(10)


def _servers(home: Path) -> list[psutil.Process]:
    """The embedded servers that work in a home."""
    import psutil

    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "prefect.server" not in " ".join(process.info["cmdline"] or ()):
            continue
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_HOME") == str(home.resolve()):
                found.append(process)
    return found
