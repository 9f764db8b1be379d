"""The models of an experiment in a work pool: a flow run of `reproduce` each, by Prefect alone."""

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect import State, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType, WorkPoolStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Cancelling

from tokenweight.errors import UserError
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import SHARED, shared_to_make, to_make
from tokenweight.progress import counted
from tokenweight.reports.targets import TARGETS

FLOW = "reproduce"
POLL_SECONDS = 5.0
CRASH_SECONDS = 30.0  # a crashed run may be set going again meanwhile, by an automation
_OVER = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]


def own_parameters(planned: ResolvedExperiment, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The flow's, for one of several experiments. UserError where it is no target, which its name would find."""
    if planned.name not in TARGETS:
        raise UserError(f"pool: takes one experiment at a time; run {planned.name} by itself")
    known = [  # a setting may be another experiment's alone
        text
        for text in parameters.get("settings", ())
        if any(recipe.has_given(text.partition("=")[0].strip()) for recipe in planned.each_recipe)
    ]
    return {**parameters, "experiment": planned.name, "seeds": len(planned.manifest.seeds), "settings": known}


def _reason(state: State[Any] | None) -> str:
    """The state's message without what Prefect puts before an error's own."""
    if state is None:
        return "its flow run was deleted"
    message = " ".join((state.message or f"ended as {state.name}").split())
    return re.sub(r"^Flow run encountered an exception: ((Stage|User)Error: )?", "", message)


def run_in_pool(
    planned: ResolvedExperiment, store: Store, pool: str, at_once: int, parameters: Mapping[str, Any]
) -> dict[str, str]:
    """Run each model that lacks something as a flow run in a work pool, first what several need; why some failed, by recipe.

    `parameters`: those of the flow for each of them.

    UserError: the pool is not there, has no deployment of the flow reproduce, or is this run's own.
    """
    runs = planned.graph.runs
    waiting = [run for run in runs if to_make(planned.graph.part([run]), store)]
    get_run_logger().info("%s: %s, %d of them to make", planned.name, counted(len(runs), "model"), len(waiting))
    if not waiting:
        return {}
    failed: dict[str, str] = {}
    parameters = {**parameters, "store": str(store.root)}
    with get_client(sync_client=True) as client:
        deployment = _deployment_in(client, pool)
        if shared_to_make(planned.graph, store):
            failed = _run(client, deployment, [SHARED], at_once, parameters)
        if failed:  # those that lack it would fail each in turn
            lacking = set(shared_to_make(planned.graph, store))
            stopped = [run for run in waiting if not lacking.isdisjoint(to_make(planned.graph.part([run]), store))]
            failed = dict.fromkeys(stopped, f"{SHARED}: {failed[SHARED]}")
        waiting = [run for run in waiting if run not in failed]
        failed |= _run(client, deployment, waiting, at_once, parameters)
    return {recipe: why for run, why in failed.items() for recipe in runs[run]}


def _deployment_in(client: SyncPrefectClient, pool: str) -> UUID:
    try:
        status = client.read_work_pool(pool).status
    except ObjectNotFound:
        raise UserError(f"pool {pool}: the server has no such work pool; create it, or leave pool out") from None
    if client.read_flow_run(UUID(str(runtime.flow_run.id))).work_pool_name == pool:
        raise UserError(
            f"pool {pool}: is the one of this run, so that its models could wait for it for ever; choose another"
        )
    found = client.read_deployments(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW]}}),
        work_pool_filter=WorkPoolFilter.model_validate({"name": {"any_": [pool]}}),
    )
    if not found:
        raise UserError(
            f"pool {pool}: has no deployment of the flow {FLOW}; `prefect deploy --all` makes it, while "
            "`tokenweight serve` has no pools: with it, leave pool out (docs/sweeps.md)"
        )
    if status != WorkPoolStatus.READY:
        get_run_logger().warning("pool %s: no worker is running; the models wait for one", pool)
    return found[0].id


def _run(
    client: SyncPrefectClient, deployment: UUID, runs: Sequence[str], at_once: int, parameters: Mapping[str, Any]
) -> dict[str, str]:
    logger = get_run_logger()
    begun = {str(run.parameters.get("run")): run.id for run in _open_runs(client, runtime.flow_run.id)}
    waiting, running, failed = deque(runs), dict[UUID, str](), dict[str, str]()
    while waiting or running:
        while waiting and len(running) < at_once:
            label = waiting.popleft()
            if label not in begun:
                run: FlowRun = run_deployment(deployment, parameters={**parameters, "run": label}, timeout=0)  # type: ignore[assignment]
                begun[label] = run.id
            running[begun[label]] = label
        time.sleep(POLL_SECONDS)
        chosen = FlowRunFilter.model_validate({"id": {"any_": list(running)}})
        seen = {run.id: run.state for run in client.read_flow_runs(flow_run_filter=chosen)}
        for run_id, label in list(running.items()):
            state = seen.get(run_id)
            if run_id in seen and not _is_over(state):
                continue
            del running[run_id]
            if state and state.is_completed():
                logger.info("%s: finished, %d to go", label, len(waiting) + len(running))
            else:
                failed[label] = _reason(state)
                logger.error("%s failed: %s", label, failed[label])
    return failed


def _open_runs(client: SyncPrefectClient, parent: Any) -> list[FlowRun]:
    """What a run, or an earlier attempt of it, submitted and is not over."""
    chosen = FlowRunFilter.model_validate(
        {"parent_flow_run_id": {"any_": [parent]}, "state": {"type": {"not_any_": _OVER}}}
    )
    return client.read_flow_runs(flow_run_filter=chosen)


def _is_over(state: State[Any] | None) -> bool:
    if state is None or not state.is_final():
        return False
    return not state.is_crashed() or (datetime.now(UTC) - state.timestamp).total_seconds() > CRASH_SECONDS


def cancel_runs(flow: Any, flow_run: FlowRun, state: Any) -> None:
    """A hook, called by these names: a run that is cancelled takes those in its pool with it, those that wait too."""
    with get_client(sync_client=True) as client:
        for run in _open_runs(client, flow_run.id):
            in_our_process = run.deployment_id is None  # which has ended
            client.set_flow_run_state(run.id, Cancelled() if in_our_process else Cancelling(), force=in_our_process)
