"""A flow run in a Slurm job whose time is nearly up: it ends without a state of its own, and Slurm starts it again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenweight.training.stopping import VARIABLE, Stopped


@contextmanager
def left_to_slurm(note: Callable[[str], None]) -> Iterator[None]:
    """Where a stage stopped as the job's script asked, tell the script and leave; elsewhere Stopped is an error.

    Raised, it would make the flow run a failed one, which nothing runs again.
    """
    try:
        yield
    except Stopped as stopped:
        stop_file = os.environ.get(VARIABLE)
        if stop_file is None or "PREFECT__FLOW_RUN_ID" not in os.environ:  # a command of a user's own, which ends
            raise
        note(f"{stopped} The job goes back into Slurm's queue.")
        logging.shutdown()
        Path(f"{stop_file}.obeyed").touch()
        os._exit(0)
