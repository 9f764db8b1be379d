"""Who works in a store: the lease of each artifact in the making, and a lock between runs and clean-ups.

A living holder renews its lease; a dead one's is free to take.
"""

import fcntl
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from filelock import SoftFileLease, Timeout

from tokenweight.errors import UserError
from tokenweight.files import writing

LEASES = "leases"
LEASE_SECONDS = 60.0  # a holder on another host that was silent so long is taken for dead
HEARTBEAT_SECONDS = 10.0
_SILENT_SECONDS = 10 * LEASE_SECONDS  # by this host's clock, which may differ from the holder's
_POLL_SECONDS = 0.5
_RUNS = "runs.lock"


@contextmanager
def lease(
    root: Path, stage: str, fingerprint: str, waiting: Callable[[], None] | None = None
) -> Iterator[SoftFileLease | None]:
    """Hold an artifact's lease, one for each address. Yields None where another has it and no `waiting` is there to call.

    UserError where the store cannot be written.
    """
    held = _lease(root, stage, fingerprint)
    with writing(f"store {root}", "another --store"):
        (root / LEASES).mkdir(parents=True, exist_ok=True)
    is_ours, told = _take(root, held), False
    while not is_ours:
        if waiting is None:
            yield None
            return
        if not told:
            waiting()
        told = True
        time.sleep(_POLL_SECONDS)
        is_ours = _take(root, held)
    try:
        yield held
    finally:
        held.release()


def is_held(root: Path, stage: str, fingerprint: str) -> bool:
    """Whether a living holder has an artifact's lease. Changes nothing."""
    held = _lease(root, stage, fingerprint)
    try:
        silent = time.time() - Path(held.lock_file).stat().st_mtime
    except OSError:  # nobody's, or released meanwhile
        return False
    return silent < _SILENT_SECONDS and not _is_dead(held, silent)


def _take(root: Path, held: SoftFileLease) -> bool:
    """Whether we have it now. Of a dead holder it is freed by one process at a time, or one would free what another took."""
    with suppress(Timeout):
        held.acquire(timeout=0)
        return True
    with (root / LEASES / "freeing").open("a") as file, suppress(OSError, Timeout):
        silent = time.time() - Path(held.lock_file).stat().st_mtime
        if _flock(file, fcntl.LOCK_EX) and _is_dead(held, silent):
            held.force_break()
            held.acquire(timeout=0)
            return True
    return False


def _is_dead(held: SoftFileLease, silent_seconds: float) -> bool:
    """Whether a lease's holder is known to be dead: filelock alone takes a zombie for alive, and an empty record for a holder.

    A zombie may stay (a container's first process need not reap it); killed before it wrote its record, a process leaves none.
    """
    import psutil

    if (owner := held.owner) is None:
        return silent_seconds > LEASE_SECONDS
    if owner.hostname != socket.gethostname():
        return False
    try:
        return bool(psutil.Process(owner.pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def held_in(root: Path) -> set[tuple[str, str]]:
    """Stage and first 8 digits of the fingerprint of all that living holders are making."""
    names = (path.stem.partition("-") for path in (root / LEASES).glob("*.lock"))
    return {(stage, short) for stage, _, short in names if is_held(root, stage, short)}


def _lease(root: Path, stage: str, fingerprint: str) -> SoftFileLease:
    path = root / LEASES / f"{stage}-{fingerprint[:8]}.lock"
    return SoftFileLease(path, lease_duration=LEASE_SECONDS, heartbeat_interval=HEARTBEAT_SECONDS, thread_local=False)


@contextmanager
def shared_lock(root: Path, note: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Held by a run from its plan to its end, so that nothing that it counts on is removed meanwhile.

    The kernel frees it when the process ends, however it does. Without flock on the store's file system it holds nothing.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / _RUNS).open("a+") as file:
        if not _flock(file, fcntl.LOCK_SH):
            note("waiting for a clean-up of the store")
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def exclusive_lock(root: Path) -> Iterator[None]:
    """Held by a clean-up that takes complete artifacts. UserError where a run is at work in the store, or it is read-only."""
    with writing(f"store {root}", "another --store"):
        file = (root / _RUNS).open("a+")
    with file:
        if not _flock(file, fcntl.LOCK_EX) or held_in(root):
            raise UserError(
                f"store {root}: a run is using it and may need what would be removed; wait for its end, "
                "or leave out --keep-targets and --weights"
            )
        yield


def _flock(file: IO[str], how: int) -> bool:
    """False where another has it; where there is no flock the leases alone count."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True
