"""`python -m tokenweight.processes PARENT_PID COMMAND...`: run a command whose whole tree ends with its parent.

Three failures forced it. A launcher may die without a word to its ranks, which then hold their GPUs for good: they come
to us, and end with us. A process that is killed (kill -9, the kernel for memory) can end nobody: the kernel tells us by
TERM that our parent is dead. And a scheduler sends TERM to every process of a job: while our parent lives it decides,
gives a training time for a checkpoint, and then ends us by INT; TERM alone must not end us before.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LEAVE_SIGNAL = signal.SIGINT  # by which a living parent ends us
GRACE_SECONDS = 15.0  # for a launcher to stop its ranks


def end_with_parent(parent_pid: int, signal_number: int = signal.SIGTERM) -> None:
    """Ask the kernel (Linux) to send us a signal when our parent dies; exit if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent_pid:
            sys.exit(1)


def run_tree(command: list[str], parent_pid: int) -> int:
    """Run a command to its end and return its status; whatever it leaves, and all of it when we are ended, is ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def leave(number: int, _frame: FrameType | None) -> None:
        if number == LEAVE_SIGNAL or os.getppid() != parent_pid:
            sys.exit(128 + number)

    for number in (signal.SIGTERM, LEAVE_SIGNAL):
        signal.signal(number, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {LEAVE_SIGNAL})  # a run holds it back from all that it starts
    own = os.getpid()
    child = subprocess.Popen(command, preexec_fn=lambda: end_with_parent(own))
    try:
        status = child.wait()
        return status if status >= 0 else 128 - status
    finally:
        stop_tree(child)
        kill(psutil.Process().children(recursive=True))


def stop_tree(
    child: subprocess.Popen[bytes] | subprocess.Popen[str],
    grace_seconds: float = GRACE_SECONDS,
    first: signal.Signals = signal.SIGTERM,
) -> None:
    """End a child and all its descendants: TERM and time, so that a launcher stops its ranks, then KILL what is left."""
    try:
        tree = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        tree = []
    child.send_signal(first)
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_seconds)
    child.kill()
    child.wait()
    kill(tree)


def kill(processes: list[psutil.Process], grace_seconds: float = 0.0) -> None:
    """Kill processes, those that are gone already too; with a grace they get TERM and that time before."""
    if grace_seconds:
        for process in processes:
            with suppress(psutil.Error):
                process.terminate()
        _, processes = psutil.wait_procs(processes, timeout=grace_seconds)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=1)


def call_at_signals(call: Callable[[int], None], *numbers: int) -> None:
    """Call `call(number)` at these signals, in a thread: the main one may hang, and others put handlers in place of ours."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def wait(_keep_open: socket.socket) -> None:
        while number := ours.recv(1)[0]:
            if number in numbers:
                call(number)

    threading.Thread(target=wait, args=(theirs,), name="signals", daemon=True).start()


if __name__ == "__main__":
    parent = int(sys.argv[1])
    end_with_parent(parent)
    sys.exit(run_tree(sys.argv[2:], parent))
