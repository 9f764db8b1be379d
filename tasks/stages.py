"""The Prefect task of a piece: it waits for a worker's answer. The store decides about reuse; Prefect carries no data."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed

from tokenweight.pipeline.store import Note
from tokenweight.planning.graph import STAGES
from tokenweight.progress import Progress
from tokenweight.tasks.progress import progress_of
from tokenweight.tasks.slots import Interrupted, OutOfMemory
from tokenweight.training.stopping import VARIABLE, Stopped

Run = Callable[[Note, Progress], tuple[int, int]]  # makes a piece; how many artifacts were made and reused


def is_transient(_task: object, _run: object, state: State[Any]) -> bool:
    """Whether a new worker may do better: it gets one try."""
    return isinstance(state.result(raise_on_failure=False), OutOfMemory)


@task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False, retries=1, retry_condition_fn=is_transient)
def make(label: str, reason: str, run: Run | None) -> State[Any]:
    """Make a piece by `run`; without it everything is reused, for this reason."""
    if run is None:
        return Completed(name="Reused", message=reason, data=0)
    note = get_run_logger().info
    try:
        with left_to_slurm(note), progress_of(label) as progress:
            made, reused = run(note, progress)
    except Interrupted as interrupted:
        return Cancelled(message=str(interrupted))
    return Completed(name="Completed" if made else "Reused", message=f"{made} made, {reused} reused", data=made)


TASKS: dict[str, Task[[str, str, Run | None], Any]] = {
    stage.name: make.with_options(name=stage.name, tags=[stage.name]) for stage in STAGES
}


@contextmanager
def left_to_slurm(note: Note) -> Iterator[None]:
    """Where a stage stopped as its Slurm job's script asked, report that to the script and leave; else Stopped is an error.

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
