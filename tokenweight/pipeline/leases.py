"""Leases: who is making which artifact. A living holder renews its lease; a dead one's is free to take."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import SoftFileLease, Timeout

FOLDER = "leases"
LEASE_SECONDS = 60.0  # a holder on another host that was silent so long is taken for dead
HEARTBEAT_SECONDS = 10.0
_SILENT_SECONDS = 10 * LEASE_SECONDS  # hosts' clocks may differ


@dataclass(frozen=True)
class Holder:
    """What a lease's file says: the artifact's stage and short fingerprint, and the process that holds it."""

    path: Path
    stage: str
    short: str
    pid: int | None
    host: str | None
    alive: bool


def lease_of(root: Path, stage: str, fingerprint: str) -> SoftFileLease:
    """The lease of an artifact, one for each address: stage and the first 8 digits of the fingerprint."""
    path = root / FOLDER / f"{stage}-{fingerprint[:8]}.lock"
    return SoftFileLease(path, lease_duration=LEASE_SECONDS, heartbeat_interval=HEARTBEAT_SECONDS, thread_local=False)


@contextmanager
def held(root: Path, stage: str, fingerprint: str) -> Iterator[bool]:
    """Hold an artifact's lease if nobody else does; yields whether we do."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    lease = lease_of(root, stage, fingerprint)
    try:
        lease.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lease.release()


def holders(root: Path) -> list[Holder]:
    """All leases of a store, living and dead. Changes nothing."""
    found = []
    for path in sorted((root / FOLDER).glob("*.lock")):
        try:
            lines, silent = path.read_text().splitlines(), time.time() - path.stat().st_mtime
        except OSError:  # released meanwhile
            continue
        told = dict(line.partition("=")[::2] for line in lines)
        pid = int(told["pid"]) if told.get("pid", "").isdigit() else None
        stage, _, fingerprint = path.stem.partition("-")
        alive = silent < _SILENT_SECONDS and (told.get("host") != socket.gethostname() or _exists(pid))
        found.append(Holder(path, stage, fingerprint[:8], pid, told.get("host"), alive))
    return found


def _exists(pid: int | None) -> bool:
    import psutil

    return pid is not None and psutil.pid_exists(pid)
