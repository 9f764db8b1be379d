"""A training that is asked to stop ends after its current step, with a checkpoint; the next run resumes there.

It is asked by a file: that reaches every process on every node, whatever started them. There are two. One lies in the
artifact's launch folder and is made where a launched training is ended (TERM). The other is named by the environment
and is made by whoever knows that the time is nearly over, such as a Slurm job's script (docs/slurm.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenweight.errors import StageError

VARIABLE = "TOKENWEIGHT_STOP_FILE"
STOP_FILE = "stop"  # in the launch folder
GRACE_SECONDS = 20.0  # for the step and its checkpoint; Slurm kills 30 s after TERM unless KillWait says otherwise

_active: set[Path] = set()  # stop files of the trainings that this process launched


class Stopped(StageError):
    """A training ended early, as asked, with a checkpoint."""


def stop_files(launch_folder: Path) -> tuple[Path, ...]:
    """The files that ask a training to stop; they need not exist."""
    named = os.environ.get(VARIABLE)
    return (launch_folder / STOP_FILE, *([Path(named)] if named else []))


def ask_to_stop(file: Path) -> None:
    """Make the file, unless it is there (its time tells when it was made) or its directory is gone with the training."""
    with suppress(FileNotFoundError, FileExistsError):
        file.touch(exist_ok=False)


@contextmanager
def stoppable(launch_folder: Path) -> Iterator[Path]:
    """A launched training that :func:`stop_all` reaches; yields its stop file."""
    file = launch_folder / STOP_FILE
    _active.add(file)
    try:
        yield file
    finally:
        _active.discard(file)


def stop_all() -> None:
    """Ask the launched trainings of this process to stop and wait for them, GRACE_SECONDS at most."""
    for file in tuple(_active):
        ask_to_stop(file)
    deadline = time.monotonic() + GRACE_SECONDS
    while _active and time.monotonic() < deadline:
        time.sleep(0.1)
