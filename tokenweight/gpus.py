"""Which GPUs of this machine a run takes: free ones, for itself alone, until it ends.

A limit of a server counts runs and chooses no device. Here each GPU has a lock file on the machine (flock), so a run that
dies in whatever way has freed its GPUs. Only visible GPUs are taken: those in CUDA_VISIBLE_DEVICES, which is how Slurm
and others hand out an allocation. Everything that a run starts sees the chosen ones in CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenweight.recipes.schema import Execution

VISIBLE = "CUDA_VISIBLE_DEVICES"
LOCKS = "TOKENWEIGHT_GPU_LOCKS"  # another directory for the lock files
_TRAINED = {"pretrain", "score", "train"}
_POLL_SECONDS = 0.5


@dataclass
class _Held:
    """What this process holds, and what was visible before it took anything."""

    names: list[str]
    before: str | None
    locks: dict[str, int] = field(default_factory=dict)  # GPU -> descriptor of its locked file


_held: _Held | None = None


@contextmanager
def chosen_gpus(execution: Execution, stages: Collection[str], note: Callable[[str], None]) -> Iterator[list[str]]:
    """Hold as many GPUs as the stages need, waiting for them if need be, and make only these visible.

    Yields their names; none where no stage needs one, none is there, or several nodes take part (whose allocation is
    theirs alone). A process in which CUDA runs keeps its GPUs to its end: its context stays on them.
    """
    global _held
    least, all_free = needed(execution, stages)
    if not least or execution.nodes > 1:
        yield []
        return
    held = _held or _Held(_visible(), os.environ.get(VISIBLE))
    if not held.names:
        yield []
        return
    _held = held
    chosen = _take(held, min(least, len(held.names)), all_free, note)
    os.environ[VISIBLE] = ",".join(chosen)
    try:
        yield chosen
    finally:
        if not _cuda_runs():
            _release(held, held.locks)
            _held = None
            if held.before is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = held.before


def needed(execution: Execution, stages: Collection[str]) -> tuple[int, bool]:
    """How many GPUs stages need at least, and whether they use all that are free. (0, False) without a GPU."""
    if execution.device == "cpu":
        return 0, False
    least, all_free = 0, False
    if _TRAINED.intersection(stages):
        least = execution.processes_per_node
    if "evaluate" in stages:
        processes = execution.evaluation_processes
        all_free = processes == "gpus"
        least = max(least, (1 if processes == "gpus" else processes) * execution.tensor_parallel)
    return least, all_free


def _visible() -> list[str]:
    count = _count()
    given = os.environ.get(VISIBLE)
    return given.split(",")[:count] if given else [str(i) for i in range(count)]


def _count() -> int:
    import torch

    return torch.cuda.device_count()


def _cuda_runs() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _take(held: _Held, least: int, all_free: bool, note: Callable[[str], None]) -> list[str]:
    """Lock GPUs, ours first; nothing is held while we wait, so that two runs that want several never block each other."""
    told = False
    while True:
        wanted = len(held.names) if all_free else least
        new: dict[str, int] = {}
        for name in held.names:
            if len(held.locks) + len(new) >= wanted:
                break
            if name not in held.locks and (descriptor := _lock(name)) is not None:
                new[name] = descriptor
        if len(held.locks) + len(new) >= least:
            held.locks |= new
            return [name for name in held.names if name in held.locks][: max(least, wanted)]
        free = len(held.locks) + len(new)
        _release(held, new)
        if not told:
            others = ", ".join(sorted({_holder(name) for name in held.names if name not in {*held.locks, *new}}))
            note(f"waiting for {least} of {len(held.names)} GPUs: {free} free, the others held by {others}")
            told = True
        time.sleep(_POLL_SECONDS)


def _lock(name: str) -> int | None:
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
    return descriptor


def _open(path: Path) -> int:
    """For all users: Linux refuses O_CREAT of another user's file in a directory that anybody may write to."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        path.parent.chmod(0o1777)
        return descriptor


def _holder(name: str) -> str:
    try:
        return _file(name).read_text() or "another process"
    except OSError:
        return "another process"


def _release(held: _Held, locks: dict[str, int]) -> None:
    for name, descriptor in list(locks.items()):
        os.close(descriptor)
        held.locks.pop(name, None)


def _file(name: str) -> Path:
    """A GPU's lock; in a Slurm job one of the job's own, for GPUs may be counted from 0 in each job."""
    job = os.environ.get("SLURM_JOB_ID")
    owner = f"job-{job}" if job else "machine"
    place = Path(os.environ.get(LOCKS) or "/tmp/tokenweight-gpus")
    return place / f"{owner}-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}"
