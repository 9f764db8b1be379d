"""Runs whose processes are gone: put back into the queue, to go on when a worker is there, or their cancellation finished."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled

from tokenweight.daemons import worker_name

_AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_PENDING_SECONDS = 60.0  # a worker that took a run has started its process by then
_PAGE = 200


def put_back(flow_runs: Iterable[str], say: Callable[[str], None]) -> None:
    """Schedule runs again whose processes were ended, by their ids, and settle what this machine's dead processes left.

    Left to the automations, it would take minutes: a server that has just started knows nothing of the events before
    those that would start them, and waits a quarter of an hour for these.
    """
    with get_client(sync_client=True) as client:
        left = {str(run.id): run for run in _at_work(client) if _is_dead(run)}
        for flow_run in sorted({*flow_runs, *left}):
            try:
                run = left.get(flow_run) or client.read_flow_run(UUID(flow_run))
            except ObjectNotFound:
                continue
            state = run.state
            if state and state.is_cancelling():
                client.set_flow_run_state(run.id, Cancelled(message="its processes have ended"), force=True)
                say(f"{run.name}: cancelled")
            elif run.deployment_id and (
                state is None or state.is_crashed() or state.is_running() or state.is_pending()
            ):
                waiting: State[None] = AwaitingRetry(message="interrupted by `tokenweight server`")
                client.set_flow_run_state(run.id, waiting, force=True)
                say(f"{run.name}: interrupted, goes on where it was cut when a worker is there")


def _at_work(client: SyncPrefectClient) -> Iterator[FlowRun]:
    """Runs that the server takes for running, about to, or being cancelled."""
    chosen = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_AT_WORK)))
    offset = 0
    while page := client.read_flow_runs(flow_run_filter=chosen, limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def _is_dead(run: FlowRun) -> bool:
    """Whether a worker of this machine (by its name) had started the run, and its process is gone."""
    if run.state and run.state.is_pending():
        age = datetime.now(UTC) - run.state.timestamp
        if age < timedelta(seconds=_PENDING_SECONDS):
            return False
    pid = run.infrastructure_pid or ""
    ours = run.labels.get("prefect.worker.name") == worker_name(run.work_pool_name or "", socket.gethostname())
    if not ours or not pid.isdecimal():
        return False
    try:
        return psutil.Process(int(pid)).environ().get("PREFECT__FLOW_RUN_ID") != str(run.id)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # another user's, who knows
        return False
