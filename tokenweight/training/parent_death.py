"""`python -m tokenweight.training.parent_death PARENT_PID COMMAND...`: run a command whose whole tree ends with its parent.

A launcher that is killed may leave its processes behind (deepspeed's does): they come to us, and end with us.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 15.0  # for a launcher to stop its ranks


def end_with_parent(parent_pid: int, signal_number: int = signal.SIGTERM) -> None:
    """Ask the kernel (Linux) to send us a signal when our parent dies; exit if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent_pid:
            sys.exit(1)


def run_tree(command: list[str]) -> int:
    """Run a command to its end and return its status; whatever it leaves, and all of it at TERM or INT, is ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    own = os.getpid()
    child = subprocess.Popen(command, preexec_fn=lambda: end_with_parent(own))
    try:
        status = child.wait()
        return status if status >= 0 else 128 - status
    finally:
        stop_tree(child)
        _kill(psutil.Process().children(recursive=True))


def stop_tree(child: subprocess.Popen[bytes] | subprocess.Popen[str], grace_seconds: float = GRACE_SECONDS) -> None:
    """End a child and all its descendants: TERM and time, so that a launcher stops its ranks, then KILL what is left."""
    try:
        tree = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        tree = []
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_seconds)
    child.kill()
    child.wait()
    _kill(tree)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=1)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.exit(run_tree(sys.argv[2:]))
