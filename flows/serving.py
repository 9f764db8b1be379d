"""`tokenweight serve`: Prefect's `serve` over the deployments of prefect.yaml, in one foreground process.

What people changed on the server stays: schedules that they paused, resumed or made, deployments that are not ours. A
deployment's version names the directory that it is served from, so that a second checkout does not take it over
unnoticed, and those that left the file are deleted.
"""

import asyncio
import hashlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from filelock import FileLock, Timeout
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
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
from tokenweight.progress import counted
from tokenweight.recipes.recipe import one_line

FILE = "prefect.yaml"
SERVED = "served from "  # HOST:DIRECTORY, the version of its deployments
_PAGE = 200
_OPEN = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
Say = Callable[[str], None]


class Schedule(BaseModel):
    """A schedule of the file; `active`: of a new one, which `{{ schedule.active }}` leaves paused (:func:`paused_at_first`)."""

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


def file_of(project: Path) -> Path:
    """A project's own file of deployments, else the one that is installed with the package."""
    own = project / FILE
    return own if own.exists() else Path(__file__).with_name(FILE)


def entries_in(file: Path) -> list[Entry]:
    """The deployments of a file. UserError: it is none of Prefect's."""
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
        return [Entry.model_validate(entry) for entry in content["deployments"]]
    except ValidationError as error:
        raise UserError(f"{file}: a deployment: {one_line(error)}") from None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{file}: is not a list of deployments ({' '.join(str(error).split())}); correct it") from None


def serve(project: Path, url: str, runs: int, take_over: bool, say: Say) -> None:
    """Register the deployments of a project (:func:`file_of`) on the server in use and run them until SIGINT or SIGTERM.

    UserError: they are served by another process, or belong to somebody else and are not to be taken over.
    """
    file = file_of(project)
    entries, owner = entries_in(file), f"{socket.gethostname()}:{project}"
    with _alone(owner, url), get_client(sync_client=True) as client:
        say(f"registers {counted(len(entries), 'deployment')} of {file}, which can take a minute or two")
        deployments = [_deployment(client, entry, owner, take_over) for entry in entries]
        runner = Runner("tokenweight", limit=runs, pause_on_shutdown=False)
        ours = {UUID(str(runner.add_deployment(one))) for one in deployments}
        _delete_others(client, SERVED + owner, ours, say)
        settle(client, ours, say)
        scheduled = {one.name: one.schedules for one in deployments if one.schedules}
        paused = [name for name, schedules in scheduled.items() if not any(one.active for one in schedules)]
        say(
            f"ready: {counted(len(ours), 'deployment')}, {counted(runs, 'run')} at once; Ctrl-C stops this and its runs"
        )
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
        raise UserError(f"{owner}: another `tokenweight serve` of this directory is running; stop it first") from None
    with lock:
        yield


def _deployment(client: SyncPrefectClient, entry: Entry, owner: str, take_over: bool) -> RunnerDeployment:
    """As Prefect's `serve` takes it, with what people set on the server. UserError where it belongs to somebody else."""
    deployment = RunnerDeployment.from_entrypoint(
        entry.entrypoint.replace(":", "."),  # a module's, which no file of the directory can shadow
        name=entry.name,
        description=entry.description,
        parameters=entry.parameters,
        tags=entry.tags,
        version=SERVED + owner,
        concurrency_limit=entry.concurrency_limit,
    )
    deployment.work_pool_name = None  # said, so that a deployment that a pool had leaves it
    deployment.work_queue_name = None
    before: DeploymentResponse | None = None
    with suppress(ObjectNotFound):
        before = client.read_deployment_by_name(deployment.full_name)
    if before and before.version != deployment.version and not take_over:
        place = "was made by somebody else"
        if before.work_pool_name is not None:
            place = f"is of work pool {before.work_pool_name}"
        elif (before.version or "").startswith(SERVED):
            place = f"is {before.version}"
        raise UserError(
            f"deployment {deployment.full_name}: {place}; --take-over takes it, and the others of {FILE}, over"
        )
    there = {schedule.slug: schedule for schedule in before.schedules} if before else {}
    deployment.schedules = [
        _schedule(one, there[one.slug].active if one.slug in there else one.active is True) for one in entry.schedules
    ]
    ours = {one.slug for one in entry.schedules}
    deployment.schedules += [
        DeploymentScheduleCreate(schedule=one.schedule, active=one.active, slug=one.slug, parameters=one.parameters)
        for one in (before.schedules if before else ())
        if one.slug not in ours
    ]
    deployment.paused = before.paused if before else False
    return deployment


def _schedule(schedule: Schedule, active: bool) -> DeploymentScheduleCreate:
    given = schedule.model_dump(include={"cron", "interval", "rrule", "timezone"}, exclude_none=True)
    return DeploymentScheduleCreate(
        schedule=construct_schedule(**given), active=active, slug=schedule.slug, parameters=schedule.parameters
    )


def _delete_others(client: SyncPrefectClient, version: str, ours: set[UUID], say: Say) -> None:
    """Deployments that left the file: their schedules would continue."""
    found: list[DeploymentResponse] = []
    while page := client.read_deployments(limit=_PAGE, offset=len(found)):
        found += page
    for one in found:
        if one.version == version and one.id not in ours:
            client.delete_deployment(one.id)
            say(f"deployment {one.name}: deleted, because {FILE} no longer has it")


def settle(client: SyncPrefectClient, deployments: set[UUID], say: Say) -> None:
    """Give the runs that a killed process left open a final state; suspended and paused ones are left as they are.

    Flow runs end with the process that serves them, and this is the only one: what is open here is dead.
    """
    ours = DeploymentFilter.model_validate({"id": {"any_": list(deployments)}})
    still_open = FlowRunFilter.model_validate({"state": {"type": {"any_": _OPEN}}})
    while page := client.read_flow_runs(deployment_filter=ours, flow_run_filter=still_open, limit=_PAGE):
        for run in page:
            again = f"; `prefect flow-run retry {run.id}` resumes it"
            kind, more = (Cancelled, "") if run.state and run.state.is_cancelling() else (Crashed, again)
            client.set_flow_run_state(run.id, kind(message=f"its process has ended{more}"), force=True)
            say(f"run {run.name}: {kind.__name__.lower()}, its process has ended{more}")


async def paused_at_first(deployment: str) -> dict[str, bool]:
    """A build step of prefect.yaml for `prefect deploy`: schedules that cost compute start paused, and stay as people set them.

    `active: false` would pause again, at each deploy, what somebody has resumed. So this step fills in
    `active: "{{ schedule.active }}"`: false where the server has no such FLOW/DEPLOYMENT yet, left out afterwards.
    """
    async with get_client() as client:
        with suppress(ObjectNotFound):
            await client.read_deployment_by_name(deployment)
            return {}
    return {"active": False}
