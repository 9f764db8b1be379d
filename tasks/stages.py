"""The Prefect task of a piece: it waits for a worker's answer. The store decides about reuse; Prefect carries no data."""

from __future__ import annotations

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed

from tokenweight.planning.graph import STAGES
from tokenweight.tasks.pieces import Piece
from tokenweight.tasks.progress import progress_of
from tokenweight.tasks.requeue import left_to_slurm
from tokenweight.tasks.slots import Interrupted, Slots, Transient


class Order:
    """What one task run works on; a plain class, so that Prefect does not look for futures in it."""

    def __init__(self, piece: Piece, slots: Slots) -> None:
        self.piece = piece
        self.slots = slots


def is_transient(_task: object, _run: object, state: State[Any]) -> bool:
    """Whether a new worker may do better: it gets one try."""
    return isinstance(state.result(raise_on_failure=False), Transient)


@task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False, retries=1, retry_condition_fn=is_transient)
def make(label: str, order: Order) -> State[Any]:
    """Make what a piece's artifacts lack, each under its own lease."""
    piece = order.piece
    if piece.reused:
        return Completed(name="Reused", message=piece.reasons[0], data=0)
    note = get_run_logger().info
    try:
        with left_to_slurm(note), progress_of(label) as progress:
            made, reused = order.slots.run(piece, note, progress)
    except Interrupted as interrupted:
        return Cancelled(message=str(interrupted))
    name = "Completed" if made else "Reused"
    return Completed(name=name, message=f"{made} made, {reused + len(piece.reasons)} reused", data=made)


def task_of(stage: str) -> Task[[str, Order], Any]:
    """The task of a stage, under the stage's name."""
    return _TASKS[stage]


_TASKS: dict[str, Task[[str, Order], Any]] = {
    stage.name: make.with_options(name=stage.name, tags=[stage.name]) for stage in STAGES
}
