"""The Prefect task of a piece: it waits for a worker's answer. The store decides about reuse; Prefect carries no data."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed

from tokenweight.pipeline.store import Note
from tokenweight.progress import Progress
from tokenweight.tasks.publish import progress_of
from tokenweight.tasks.slots import Interrupted
from tokenweight.tasks.worker import OutOfMemory
from tokenweight.training.launch import VARIABLE, Stopped

Run = Callable[[Note, Progress], int]  # makes a piece; how many artifacts were made


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
        with progress_of(label) as progress:
            made = run(note, progress)
    except Interrupted as interrupted:
        return Cancelled(message=str(interrupted))
    except Stopped as stopped:
        stop_file = os.environ.get(VARIABLE)
        if stop_file is None or "PREFECT__FLOW_RUN_ID" not in os.environ:  # a command of a user's own, which ends
            raise
        # As the job's script asked. Raised, it would make the flow run a failed one, which nothing runs again.
        note(f"{stopped} The job goes back into Slurm's queue.")
        logging.shutdown()
        Path(f"{stop_file}.obeyed").touch()
        os._exit(0)
    return Completed(name="Completed" if made else "Reused", message=f"artifacts made: {made}", data=made)
