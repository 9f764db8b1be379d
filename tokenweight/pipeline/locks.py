"""Who works in a store: any number of runs at once, or one clean-up that takes whole artifacts, alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline.leases import holders

_FILE = "runs.lock"


@contextmanager
def in_use(root: Path, note: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Held by a run from its plan to its end, so that nothing that it counts on is removed meanwhile.

    The kernel frees it when the process ends, however it does. Without flock on the store's file system it holds nothing.
    """
    root.mkdir(parents=True, exist_ok=True)
    descriptor = _open(root)
    try:
        try:
            if not _lock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB):
                note("waiting for a clean-up of the store")
                _lock(descriptor, fcntl.LOCK_SH)
        except OSError:  # no flock here: a clean-up still sees the leases
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Held by a clean-up that takes whole artifacts. UserError where a run is at work in the store."""
    descriptor = _open(root)
    try:
        try:
            free = _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            free = True
        if not free or any(holder.alive for holder in holders(root)):
            raise UserError(
                f"store {root}: a run is at work in it and may need what would go; wait for its end, "
                "or leave out --keep-targets and --weights"
            )
        yield
    finally:
        os.close(descriptor)


def _open(root: Path) -> int:
    return os.open(root / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _lock(descriptor: int, how: int) -> bool:
    """Take a lock; False where another holds it. OSError: the file system has none."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True
