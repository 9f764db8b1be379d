"""The Prefect tasks: one per stage. The store decides about reuse; Prefect carries only addresses."""

from __future__ import annotations

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed

from tokenweight.pipeline import Store
from tokenweight.pipeline.make import made
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import STAGES
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.evaluate import evaluate_units
from tokenweight.tasks.progress import progress_of
from tokenweight.tasks.requeue import left_to_slurm


class Batch:
    """What one task run works on; a plain class, so that Prefect does not look for futures in it."""

    def __init__(self, nodes: list[Artifact], store: Store, execution: Execution) -> None:
        self.nodes = nodes
        self.store = store
        self.execution = execution

    def made(self, reused: int) -> State[str]:
        """The state that a task returns: Reused where nothing was made."""
        total = len(self.nodes)
        name = "Reused" if reused == total else "Completed"
        message = f"{total - reused} made, {reused} reused"
        data = self.nodes[0].identity.address if total == 1 else f"{total} artifacts"
        return Completed(name=name, message=message, data=data)


@task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False)
def make(label: str, batch: Batch) -> State[str]:
    """Make one artifact after the other, each under its own lease."""
    logger = get_run_logger()
    reused = 0
    with left_to_slurm(logger.info), progress_of(label) as progress:
        for done, node in enumerate(batch.nodes, start=1):
            was_there = made(node, batch.store, batch.execution, progress, logger.info)
            reused += was_there
            if len(batch.nodes) > 1:
                progress(done, len(batch.nodes), "artifacts")
    return batch.made(reused)


@task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False)
def evaluate(label: str, batch: Batch) -> State[str]:
    """Evaluate the units of one checkpoint and benchmark that are not in the store."""
    note = get_run_logger().info
    with progress_of(label) as progress:
        _, reused = evaluate_units(batch.nodes, batch.store, batch.execution, progress, note)
    return batch.made(reused)


def task_of(stage: str) -> Task[[str, Batch], Any]:
    """The task of a stage, under the stage's name."""
    return _TASKS[stage]


_TASKS: dict[str, Task[[str, Batch], Any]] = {
    stage.name: (evaluate if stage.name == "evaluate" else make).with_options(name=stage.name, tags=[stage.name])
    for stage in STAGES
}
