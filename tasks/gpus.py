"""Which GPUs of this machine a run takes: free ones, for itself alone, until it ends.

Each GPU has a lock file on the machine (flock), so a run that dies in whatever way has freed its GPUs. Only visible GPUs
are taken: those in CUDA_VISIBLE_DEVICES, which is how Slurm and others hand out an allocation. The run itself computes
nothing: its workers see the GPUs of their slots alone.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from filelock import FileLock, Timeout

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import LONG, ON_GPUS
from tokenweight.tasks.worker import start

VISIBLE = "CUDA_VISIBLE_DEVICES"
LOCKS = "TOKENWEIGHT_GPU_LOCKS"  # another directory for the lock files
_POLL_SECONDS = 0.5


@contextmanager
def held_gpus(
    execution: Execution, stages: Collection[str], note: Callable[[str], None], end: float = float("inf")
) -> Iterator[list[str] | None]:
    """Hold as many GPUs as the stages need, waiting for them if need be until `end` (time.monotonic); yields their names.

    No names where no stage needs one or none is there; None where there were not enough until `end`; where several nodes
    take part all that are visible, unlocked: their allocation is the run's alone. UserError for more than there are.
    """
    if execution.device == "cpu" or not set(ON_GPUS).intersection(stages) or not (names := _visible()):
        yield []
    elif execution.nodes > 1:
        yield names
    else:
        locks = _take(names, *_wanted(execution, stages, len(names)), note, end)
        try:
            yield list(locks) or None
        finally:
            _free(locks)


def _wanted(execution: Execution, stages: Collection[str], seen: int) -> tuple[int, int]:
    """How many GPUs a run needs at least, and how many it uses if they are free."""
    least = execution.processes_per_node if set(LONG).intersection(stages) else 1
    least = max(least, execution.tensor_parallel if "evaluate" in stages else 1)
    if execution.gpus == "all":
        return min(least, seen), seen
    if execution.gpus > seen:
        raise UserError(f"execution.gpus {execution.gpus}: torch sees {seen} here; ask for no more")
    wanted = min(seen, max(least, execution.gpus))
    return wanted, wanted


def _visible() -> list[str]:
    count = _count()
    given = os.environ.get(VISIBLE)
    return given.split(",")[:count] if given else [str(i) for i in range(count)]


def _count() -> int:
    """As torch counts them, in a process that has imported it."""
    process, connection = start(_send_count, os.environ.get(VISIBLE))
    with connection:
        count: int = connection.recv()
    process.join()
    return count


def _send_count(connection: Connection, visible: str | None) -> None:
    if visible is not None:  # set after the start of the process that this one is forked from
        os.environ[VISIBLE] = visible
    import torch

    connection.send(torch.cuda.device_count())


def _take(names: list[str], least: int, most: int, note: Callable[[str], None], end: float) -> dict[str, FileLock]:
    """Lock GPUs; nothing is held while we wait, so that two runs that want several never block each other."""
    reported = False
    while True:
        locks: dict[str, FileLock] = {}
        with FileLock(_file("being-chosen"), mode=0o666):  # nobody else shall find taken what is held for a look alone
            for name in names:
                if len(locks) < most and (lock := _lock(_file(name))):
                    locks[name] = lock
            if len(locks) >= least:
                return locks
            _free(locks)
        if not reported:
            others = {_file(name).read_text() or "another process" for name in names if name not in locks}
            free, held = len(locks), ", ".join(sorted(others))
            note(f"waiting for {least} of {len(names)} GPUs: {free} free, the others held by {held}")
            reported = True
        if time.monotonic() > end:
            return {}
        time.sleep(_POLL_SECONDS)


def _free(locks: dict[str, FileLock]) -> None:
    for lock in locks.values():
        lock.release()


def _lock(path: Path) -> FileLock | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # another user's, who has done it
        path.parent.chmod(0o1777)
    lock = FileLock(path, timeout=0, mode=0o666, thread_local=False)  # for all users, whatever the umask
    try:
        lock.acquire()
    except Timeout:
        return None
    path.write_text(f"process {os.getpid()}")
    return lock


def _file(name: str) -> Path:
    """A GPU's lock; in a Slurm job one of the job's own, for GPUs may be counted from 0 in each job."""
    job = os.environ.get("SLURM_JOB_ID")
    owner = f"job-{job}" if job else "machine"
    place = Path(os.environ.get(LOCKS) or "/tmp/tokenweight-gpus")
    return place / f"{owner}-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}"
