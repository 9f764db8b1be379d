"""Runs whose processes are gone: put back into the queue, to go on when a worker is there, or their cancellation finished."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled


def put_back(flow_runs: Iterable[str], say: Callable[[str], None]) -> None:
    """Schedule runs again whose processes were ended, by their ids, and settle what this machine's dead processes left.

    Left to the automations, it would take minutes: a server that has just started knows nothing of the events before
    those that would start them, and waits a quarter of an hour for these.
    """
    with get_client(sync_client=True) as client:
        left = {str(run.id): run for run in _left_by_dead_processes(client)}
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


def _left_by_dead_processes(client: SyncPrefectClient) -> list[FlowRun]:
    """Runs that the server takes for running or being cancelled, on this machine, by processes that are gone."""
    at_work = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
    return [run for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=at_work)) if _is_dead(run)]


def _is_dead(run: FlowRun) -> bool:
    host, _, pid = (run.infrastructure_pid or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        return psutil.Process(int(pid)).environ().get("PREFECT__FLOW_RUN_ID") != str(run.id)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # another user's, who knows
        return False
