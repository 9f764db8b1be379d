"""The runs of a sweep's members: here one after the other, or in a work pool as flow runs of their own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect import State, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType, WorkPoolStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Cancelling

from tokenweight.errors import StageError, UserError
from tokenweight.pipeline import Store
from tokenweight.tasks.sweep import SHARED, PlannedSweep

MEMBER_FLOW = "sweep-member"
MOST_AT_ONCE = 200  # more queued runs starve a queue of Prefect's
POLL_SECONDS = 5.0
CRASH_SECONDS = 30.0  # a crashed run may be set going again meanwhile, by an automation
_OVER = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]


def run_here(flow: Callable[..., Any], labels: Sequence[str], parameters: dict[str, Any]) -> dict[str, str]:
    """Run the members one after the other in this process; why some failed, by label."""
    failed = {}
    for label in labels:
        state: State[Any] = flow(member=label, **parameters, return_state=True)
        if not state.is_completed():
            failed[label] = _reason_here(state)
            get_run_logger().error("%s failed: %s", label, failed[label])
    return failed


def _reason_here(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    if isinstance(error, UserError | StageError):
        return " ".join(str(error).split())
    return _reason(state)


def _reason(state: State[Any] | None) -> str:
    """The state's message without what Prefect puts before an error's own."""
    if state is None:
        return "no state"
    message = " ".join((state.message or f"ended as {state.name}").split())
    message = message.removeprefix("Flow run encountered an exception: ")
    for kind in (StageError, UserError):
        message = message.removeprefix(f"{kind.__name__}: ")
    return message


def run_in_pool(
    planned: PlannedSweep,
    store: Store,
    labels: Sequence[str],
    parameters: dict[str, Any],
    pool: str,
    at_once: int,
) -> dict[str, str]:
    """Run each member as a flow run in a work pool, first what several need; why some failed, by label.

    Raises:
        UserError: the pool is not there, has no deployment of the flow sweep-member, or is this run's own.
    """
    if not labels:
        return {}
    failed: dict[str, str] = {}
    with get_client(sync_client=True) as client:
        deployment = _deployment_in(client, pool)
        if planned.shared_to_make(store):
            failed = _run(client, deployment, [SHARED], parameters, at_once)
        if failed:  # those that lack it would fail each in turn
            lacking = set(planned.shared_to_make(store))
            stopped = [
                label for label in labels if any(step.artifact in lacking for step in planned.to_make(label, store))
            ]
            failed = dict.fromkeys(stopped, f"{SHARED}: {failed[SHARED]}")
        left = [label for label in labels if label not in failed]
        return failed | _run(client, deployment, left, parameters, at_once)


def _deployment_in(client: SyncPrefectClient, pool: str) -> UUID:
    try:
        status = client.read_work_pool(pool).status
    except ObjectNotFound:
        raise UserError(f"pool {pool}: the server has no such work pool; create it, or leave pool out") from None
    if client.read_flow_run(UUID(str(runtime.flow_run.id))).work_pool_name == pool:
        raise UserError(f"pool {pool}: is the sweep's own, so that members could wait for it for ever; choose another")
    found = client.read_deployments(
        flow_filter=FlowFilter(name=FlowFilterName(any_=[MEMBER_FLOW])),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )
    if not found:
        raise UserError(
            f"pool {pool}: has no deployment of the flow {MEMBER_FLOW}; `prefect deploy --all` makes it, while "
            "`tokenweight serve` uses no pools: there leave pool out (docs/sweeps.md)"
        )
    if status != WorkPoolStatus.READY:
        get_run_logger().warning("pool %s: no worker is up; the members wait for one", pool)
    return found[0].id


def _run(
    client: SyncPrefectClient, deployment: UUID, labels: Sequence[str], parameters: dict[str, Any], at_once: int
) -> dict[str, str]:
    logger, begun = get_run_logger(), _begun(client)
    waiting, running, failed = deque(labels), dict[UUID, str](), dict[str, str]()
    while waiting or running:
        while waiting and len(running) < at_once:
            label = waiting.popleft()
            running[begun.get(label) or _submit(deployment, label, parameters)] = label
        time.sleep(POLL_SECONDS)
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=list(running)))
        seen = {run.id: run for run in client.read_flow_runs(flow_run_filter=chosen)}
        for run_id, label in list(running.items()):
            run = seen.get(run_id)
            if run is not None and not _is_over(run):
                continue
            del running[run_id]
            if run is None or run.state is None or not run.state.is_completed():
                failed[label] = _reason(run.state) if run else "its flow run was deleted"
                logger.error("%s failed: %s", label, failed[label])
            else:
                logger.info("%s: finished, %d to go", label, len(waiting) + len(running))
    return failed


def _begun(client: SyncPrefectClient) -> dict[str, UUID]:
    """Members' runs that an earlier attempt of this sweep submitted and that are not over, by label."""
    chosen = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[UUID(str(runtime.flow_run.id))]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(not_any_=_OVER)),
    )
    return {str(run.parameters.get("member")): run.id for run in client.read_flow_runs(flow_run_filter=chosen)}


def _submit(deployment: UUID, label: str, parameters: dict[str, Any]) -> UUID:
    tags = [parameters["sweep"]]
    run: FlowRun = run_deployment(deployment, parameters={**parameters, "member": label}, timeout=0, tags=tags)  # type: ignore[assignment]
    return run.id


def _is_over(run: FlowRun) -> bool:
    state = run.state
    if state is None or not state.is_final():
        return False
    return not state.is_crashed() or (datetime.now(UTC) - state.timestamp).total_seconds() > CRASH_SECONDS


def cancel_members(flow: Any, flow_run: FlowRun, state: Any) -> None:
    """A hook: a sweep that is cancelled takes its members with it at once, those that wait too.

    Prefect calls it with these names.
    """
    chosen = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(not_any_=_OVER)),
    )
    with get_client(sync_client=True) as client:
        for member in client.read_flow_runs(flow_run_filter=chosen):
            in_our_process = member.deployment_id is None  # which has ended
            client.set_flow_run_state(member.id, Cancelled() if in_our_process else Cancelling(), force=in_our_process)
