"""`python -m tokenweight.flows.slurm.restart`, in a job that Slurm started again: its flow run may run once more.

The attempt before was cut wherever it was: by TERM it called itself crashed, by the loss of its node it still calls
itself running. What people asked for stays: a cancelled run is not begun again, nor one that has ended.
"""

from __future__ import annotations

import os
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import Pending


def may_run_again(state: State | None) -> bool:
    """Whether a job that is started again should run its flow run."""
    return state is None or state.is_running() or state.is_crashed()


def restart(flow_run_id: UUID) -> None:
    """Make a cut flow run pending, so that `prefect flow-run execute` takes it up."""
    with get_client(sync_client=True) as client:
        if may_run_again(client.read_flow_run(flow_run_id).state):
            client.set_flow_run_state(flow_run_id, requeued(), force=True)


def requeued() -> State:
    """The state of a flow run whose job is in the queue again."""
    return Pending(name="Requeued", message="Slurm starts the job again; finished stages are in the store")


if __name__ == "__main__":
    restart(UUID(os.environ["PREFECT__FLOW_RUN_ID"]))
