"""Prefect's temporary server for runs without one: quiet, offline, gone with its run; call `prepare` before importing Prefect."""

import atexit
import logging
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import psutil

from tokenweight.processes import call_at_signals, kill

_SETTINGS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
OWNER = "TOKENWEIGHT_RUN"  # process id of the run whose server this is
_HOME = "tokenweight-prefect-"
_LONGER_THAN_THE_END_TAKES = 600  # seconds
_ANSWER_SECONDS = 10.0  # of a busy machine
_SIGNAL_SECONDS = 5.0  # in which a signal to the whole group, which ends the server too, is heard here


def quiet(group: str = "every_run") -> None:
    """Make settings of embedded.toml before torch, Prefect or vllm is imported; what the user has set stays."""
    for name, value in _SETTINGS[group].items():
        os.environ.setdefault(name, value)
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "127.0.0.1" not in direct and direct != "*":  # a shell's proxy would be asked for our own server
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, [direct, "localhost,127.0.0.1,::1"]))


def answers(api_url: str) -> bool:
    """Whether a server answers at the address of an API, such as http://127.0.0.1:4200/api; a refusal is an answer."""
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=_ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def nobody_answers(api_url: str, source: str) -> str:
    """The line for a person whose server does not answer."""
    start = "start one with `prefect server start` and wait until it is up"
    return f"no Prefect server answers at {api_url} ({source}); {start}, or name another"


def prepare() -> None:
    """Give the run's temporary server a directory of its own, unless the user names a server that answers, or a home."""
    quiet()
    if url := os.environ.get("PREFECT_API_URL"):
        if answers(url):
            os.environ.setdefault("PREFECT_PLUGINS_ENABLED", "false")  # ours is for people's own `prefect` commands
            return
        print(f"no Prefect server answers at {url} (PREFECT_API_URL); this run brings its own", file=sys.stderr)
        del os.environ["PREFECT_API_URL"]
    quiet("temporary_server")
    os.environ[OWNER] = str(os.getpid())
    if os.environ.get("PREFECT_HOME"):
        return
    os.environ["PREFECT_HOME"] = home = tempfile.mkdtemp(prefix=_HOME)
    atexit.register(remove_home)
    with suppress(OSError):
        shutil.copy(_kept_database(), Path(home) / "prefect.db")


def keep_database() -> None:
    """Keep a first run's database for the later ones: making its tables costs more than all else that the server does."""
    made, kept = Path(os.environ.get("PREFECT_HOME", "")) / "prefect.db", _kept_database()
    if kept.exists() or not made.parent.name.startswith(_HOME):
        return
    temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
    with suppress(OSError, sqlite3.Error):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(temporary)) as copy:
            source.backup(copy)
        temporary.replace(kept)


def remove_home() -> None:
    """Remove the temporary server's directory, where it is ours."""
    home = Path(os.environ.get("PREFECT_HOME", ""))
    if home.name.startswith(_HOME):
        shutil.rmtree(home, ignore_errors=True)


def _kept_database() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "tokenweight" / f"prefect-{version('prefect')}.db"


_over, _ending = threading.Event(), threading.Lock()
at_signal: list[Callable[[bool], None]] = []  # ends a run's workers; called with whether they may save a step


@contextmanager
def ended_together() -> Iterator[None]:
    """A run that Ctrl-C, SIGTERM, or the death of its temporary server end at once, with its children, in one line.

    Signals often reach the whole process group, the server too: Prefect would wait minutes for it, or try as long to reach
    it. Nothing is lost: an interrupted stage resumes in the next run, as after a kill; at SIGTERM, by a scheduler that gives
    some seconds, a launched training may save its step.
    """
    call_at_signals(
        lambda number: _end_run("interrupted", 128 + number, may_save=number == signal.SIGTERM),
        signal.SIGINT,
        signal.SIGTERM,
    )
    # A thread has Ctrl-C. What the main one starts, and that does not ask for it, is ended by us without a traceback of its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # Prefect ends its own handling with a SIGTERM to itself: whoever gets it waits for the thread's clean end.
    signal.signal(signal.SIGTERM, lambda signum, frame: time.sleep(_LONGER_THAN_THE_END_TAKES))
    threading.Thread(target=_end_without_server, name="server", daemon=True).start()
    try:
        yield
    finally:
        if _over.is_set():  # what this run waited for is gone before its end is said
            time.sleep(_LONGER_THAN_THE_END_TAKES)
        _over.set()
    keep_database()


def _end_without_server() -> None:
    server: psutil.Process | None = None
    while not _over.wait(0.5):
        server = server or _temporary_server()
        if server is None:
            continue
        with suppress(psutil.Error):
            if server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
                continue
        if not _over.wait(_SIGNAL_SECONDS):
            _end_run("Prefect's temporary server ended", 1, may_save=True)


def _temporary_server() -> psutil.Process | None:
    """The child that is the server; None where there is none, or none yet."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # another one, a call of git, may be gone meanwhile
            if "prefect.server" in " ".join(child.cmdline()):
                return child
    return None


def _end_run(reason: str, code: int, *, may_save: bool) -> None:
    _ending.acquire()  # for good: whoever is first says why
    _over.set()
    logging.disable(logging.CRITICAL)  # what fails now that the server was hit too is nobody's matter
    try:
        for end_workers in tuple(at_signal):
            end_workers(may_save)
        kill(psutil.Process().children(recursive=True), grace_seconds=5)
        remove_home()
        print(f"\nerror: {reason}; run the same command again to resume", file=sys.stderr, flush=True)
    finally:
        os._exit(code)
