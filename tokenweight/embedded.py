"""Prefect's embedded server for runs without one: quiet, offline, in the store; call `prepare` before importing Prefect."""

from __future__ import annotations

import atexit
import os
import shutil
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_QUIET = {
    "GOMP_SPINCOUNT": "20000",  # threads that spin long while they wait cost a busy machine several times the work
    "DO_NOT_TRACK": "1",  # offline, Prefect's analytics print errors
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # 20 s is too short for two busy cores
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
}


def quiet() -> None:
    """Settings for every run, before torch and Prefect are imported; what the user has set stays."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def prepare(store_root: Path) -> None:
    """Choose PREFECT_HOME inside the store, unless the user names a server or a home.

    Two runs at once get a home each: the embedded server's SQLite file is for one server.
    """
    quiet()
    if os.environ.get("PREFECT_API_URL") or os.environ.get("PREFECT_HOME"):
        return
    shared = store_root / "prefect"
    shared.mkdir(parents=True, exist_ok=True)
    _end_orphans(shared)
    lock = FileLock(store_root / "prefect.lock", timeout=0)
    try:
        lock.acquire()
        home = shared
        atexit.register(lock.release)
    except Timeout:
        home = store_root / f"prefect-{os.getpid()}"
        home.mkdir(exist_ok=True)
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["PREFECT_HOME"] = str(home.resolve())


def _end_orphans(home: Path) -> None:
    """End embedded servers of this store whose flow was killed (they outlive a kill -9)."""
    import psutil

    homes = str(home.resolve().parent / "prefect")
    for process in psutil.process_iter(["ppid", "cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if process.info["ppid"] != 1 or "prefect.server" not in command:
            continue
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_HOME", "").startswith(homes):
                process.terminate()
