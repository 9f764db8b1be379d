"""`python -m tokenweight.training.parent_death PARENT_PID COMMAND...`: run a command that ends when its parent does."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int, signal_number: int = signal.SIGTERM) -> None:
    """Ask the kernel (Linux) to send us a signal when our parent dies; exit if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent_pid:
            sys.exit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
