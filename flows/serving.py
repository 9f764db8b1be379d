"""`tokenweight serve`: Prefect's `serve` over the deployments of prefect.yaml, in one foreground process.

What people changed on the server stays: schedules that they paused, resumed or made, deployments that are not ours. A
Prefect variable records who serves which deployments, so that a second checkout does not take them over unnoticed, and
those that left the file are deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from filelock import FileLock, Timeout
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, VariableCreate, VariableUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitConfig, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import construct_schedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.settings import PREFECT_HOME
from prefect.states import Cancelled, Crashed
from pydantic import BaseModel, ConfigDict, ValidationError

from tokenweight.errors import UserError

FILE = "prefect.yaml"
LEDGER = "tokenweight_served"  # Prefect variable: for each HOST:DIRECTORY the ids of its deployments
_PAGE = 200
_OPEN = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
Say = Callable[[str], None]
Ledger = dict[str, list[str]]


class Schedule(BaseModel):
    """A schedule of the file; `active`: of a new one, which `{{ schedule.active }}` leaves paused (flows/schedules.py)."""

    model_config = ConfigDict(extra="forbid")

    slug: str
    cron: str | None = None
    interval: float | None = None  # seconds
    rrule: str | None = None
    timezone: str | None = None
    active: bool | str = True
    parameters: dict[str, Any] = {}


class Entry(BaseModel):
    """What `serve` takes of a deployment's entry; pools and their job variables are for workers."""

    name: str
    entrypoint: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    tags: list[str] = []
    schedules: list[Schedule] = []
    concurrency_limit: ConcurrencyLimitConfig | None = None


class Registered(NamedTuple):
    """A deployment of the file, and what the server had of it."""

    deployment: RunnerDeployment
    before: DeploymentResponse | None


def entries_in(project: Path) -> list[Entry]:
    """The deployments of a project's file. UserError: there is no file, or it is none of Prefect's."""
    try:
        content = yaml.safe_load((project / FILE).read_text())
        return [Entry.model_validate(entry) for entry in content["deployments"]]
    except FileNotFoundError:
        raise UserError(f"{project / FILE}: is not there; run this in the project's directory") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{project / FILE}: {place} of a deployment: {first['msg']}") from None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{project / FILE}: is no list of deployments ({' '.join(str(error).split())})") from None


def serve(project: Path, url: str, runs: int, take_over: bool, say: Say) -> None:
    """Register the deployments of a project's file on the server in use and run them until SIGINT or SIGTERM.

    Raises:
        UserError: they are served by another process, or belong to somebody else and are not to be taken over.
    """
    entries, owner = entries_in(project), f"{socket.gethostname()}:{project}"
    with _alone(owner, url), get_client(sync_client=True) as client:
        registered = [_registered(client, entry) for entry in entries]
        ledger = _ledger(client)
        theirs = {key: ids for key, ids in ledger.items() if key != owner}
        if not take_over:
            _refuse_takeover(registered, theirs, set(ledger.get(owner, ())))
        runner = Runner("tokenweight", limit=runs, pause_on_shutdown=False)
        ours = {str(runner.add_deployment(one.deployment)) for one in registered}
        _delete(client, set(ledger.get(owner, ())) - ours, say)
        theirs = {key: sorted({*ids} - ours) for key, ids in theirs.items()}
        _write_ledger(client, {**{key: ids for key, ids in theirs.items() if ids}, owner: sorted(ours)})
        settle(client, ours, say)
        paused = [one.deployment.name for one in registered if _all_paused(one.deployment)]
        say(f"{len(ours)} deployments of {FILE}, {runs} runs at once; Ctrl-C ends this and its runs")
        if paused:
            say(f"paused schedules: {', '.join(paused)}; resume them on the deployments' pages")
        say("next, elsewhere: prefect deployment run reproduce-table-3 --watch")
        # Prefect ends a runner at SIGTERM in good order; Ctrl-C would leave its runs without a last state.
        signal.signal(signal.SIGINT, lambda number, frame: os.kill(os.getpid(), signal.SIGTERM))
        asyncio.run(runner.start())


@contextmanager
def _alone(owner: str, url: str) -> Iterator[None]:
    """One process serves a directory's deployments on a server: two would share the runs, and settle each other's."""
    name = hashlib.sha256(f"{owner} {url}".encode()).hexdigest()[:12]
    lock = FileLock(PREFECT_HOME.value() / f"tokenweight-serve-{name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(f"{owner}: another `tokenweight serve` of this directory runs; end it first") from None
    with lock:
        yield


def _registered(client: SyncPrefectClient, entry: Entry) -> Registered:
    """A deployment as Prefect's `serve` takes it. What people set on the server is part of it, so that it stays."""
    deployment = RunnerDeployment.from_entrypoint(
        entry.entrypoint.replace(":", "."),  # a module's, which no file of the directory can shadow
        name=entry.name,
        description=entry.description,
        parameters=entry.parameters,
        tags=entry.tags,
        concurrency_limit=entry.concurrency_limit,
    )
    deployment.work_pool_name = None  # said, so that a deployment that a pool had leaves it
    deployment.work_queue_name = None
    before: DeploymentResponse | None = None
    with suppress(ObjectNotFound):
        before = client.read_deployment_by_name(deployment.full_name)
    there = {schedule.slug: schedule for schedule in before.schedules} if before else {}
    kept = [schedule for schedule in (before.schedules if before else ()) if schedule.slug not in _slugs(entry)]
    deployment.schedules = [
        *(
            _schedule(one, there[one.slug].active if one.slug in there else one.active is True)
            for one in entry.schedules
        ),
        *(
            DeploymentScheduleCreate(schedule=one.schedule, active=one.active, slug=one.slug, parameters=one.parameters)
            for one in kept
        ),
    ]
    deployment.paused = before.paused if before else False
    return Registered(deployment, before)


def _slugs(entry: Entry) -> set[str]:
    return {schedule.slug for schedule in entry.schedules}


def _schedule(schedule: Schedule, active: bool) -> DeploymentScheduleCreate:
    given = schedule.model_dump(include={"cron", "interval", "rrule", "timezone"}, exclude_none=True)
    return DeploymentScheduleCreate(
        schedule=construct_schedule(**given), active=active, slug=schedule.slug, parameters=schedule.parameters
    )


def _all_paused(deployment: RunnerDeployment) -> bool:
    return bool(deployment.schedules) and not any(schedule.active for schedule in deployment.schedules or ())


def _refuse_takeover(registered: Iterable[Registered], theirs: Ledger, ours: set[str]) -> None:
    for deployment, before in registered:
        if before is None or str(before.id) in ours:
            continue
        owners = [owner for owner, ids in theirs.items() if str(before.id) in ids]
        place = f"is served from {owners[0]}" if owners else f"is of work pool {before.work_pool_name}"
        if not owners and before.work_pool_name is None:
            place = "was made by somebody else"
        raise UserError(
            f"deployment {deployment.full_name}: {place}; --take-over takes it, and the others of {FILE}, over"
        )


def _delete(client: SyncPrefectClient, ids: set[str], say: Say) -> None:
    """Deployments that left the file: their schedules would go on."""
    for one in sorted(ids):
        try:
            name = client.read_deployment(UUID(one)).name
            client.delete_deployment(UUID(one))
        except ObjectNotFound:
            continue
        say(f"deployment {name}: deleted, it has left {FILE}")


def settle(client: SyncPrefectClient, deployments: set[str], say: Say) -> None:
    """Give the runs that a killed process left open a final state; suspended and paused ones are left as they are.

    Flow runs end with the process that serves them, and this is the only one: what is open here is dead.
    """
    ours = DeploymentFilter(id=DeploymentFilterId(any_=[UUID(one) for one in deployments]))
    still_open = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_OPEN)))
    while page := client.read_flow_runs(deployment_filter=ours, flow_run_filter=still_open, limit=_PAGE):
        for run in page:
            if run.state and run.state.is_cancelling():
                client.set_flow_run_state(run.id, Cancelled(message="its process has ended"), force=True)
                say(f"run {run.name}: cancelled, its process has ended")
            else:
                again = f"`prefect flow-run retry {run.id}` resumes it"
                client.set_flow_run_state(run.id, Crashed(message=f"its process has ended; {again}"), force=True)
                say(f"run {run.name}: crashed, its process has ended; {again}")


def _ledger(client: SyncPrefectClient) -> Ledger:
    variable = client.read_variable_by_name(LEDGER)
    return dict(variable.value) if variable and isinstance(variable.value, dict) else {}


def _write_ledger(client: SyncPrefectClient, ledger: Ledger) -> None:
    if client.read_variable_by_name(LEDGER):
        client.update_variable(VariableUpdate(name=LEDGER, value=ledger))
    else:
        client.create_variable(VariableCreate(name=LEDGER, value=ledger))
