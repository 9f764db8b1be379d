"""Runs that `tokenweight server down` interrupts are put back into the queue, to go on after the next `up`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry


def put_back(flow_runs: Iterable[str], say: Callable[[str], None]) -> None:
    """Schedule runs again whose processes were ended; by their ids.

    Left to the automations, it would take minutes: a server that has just started knows nothing of the events before
    those that would start them, and waits a quarter of an hour for these.
    """
    with get_client(sync_client=True) as client:
        for flow_run in sorted(flow_runs):
            try:
                run = client.read_flow_run(UUID(flow_run))
            except ObjectNotFound:
                continue
            state = run.state
            ended = state is None or state.is_crashed() or state.is_running() or state.is_pending()
            if ended and run.deployment_id:
                waiting: State[None] = AwaitingRetry(message="interrupted by `tokenweight server down`")
                client.set_flow_run_state(run.id, waiting, force=True)
                say(f"{run.name}: interrupted, goes on after the next `tokenweight server up`")
