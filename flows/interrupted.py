"""Runs whose processes `tokenweight server` ended are put back into the queue, to go on when a worker is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled


def put_back(flow_runs: Iterable[str], say: Callable[[str], None]) -> None:
    """Schedule runs again whose processes were ended; by their ids. One that was being cancelled is cancelled.

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
            if state and state.is_cancelling():
                client.set_flow_run_state(run.id, Cancelled(message="its processes were ended"), force=True)
                say(f"{run.name}: cancelled")
                continue
            ended = state is None or state.is_crashed() or state.is_running() or state.is_pending()
            if ended and run.deployment_id:
                waiting: State[None] = AwaitingRetry(message="interrupted by `tokenweight server`")
                client.set_flow_run_state(run.id, waiting, force=True)
                say(f"{run.name}: interrupted, goes on where it was cut when a worker is there")
