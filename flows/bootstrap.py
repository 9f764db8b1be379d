"""What a Prefect server needs before it can run the deployments of prefect.yaml; done again, it changes nothing.

Work pools, the GPU limit, automations, deployments. What people changed on the server stays: pools that are there,
paused schedules, disabled automations, deployments that were not made from the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
    VariableCreate,
    VariableUpdate,
    WorkPoolCreate,
)
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from tokenweight.errors import StageError, UserError
from tokenweight.flows.automations import automations
from tokenweight.tasks.gpus import LIMIT

FILE = "prefect.yaml"
PAUSED_AT_FIRST = "schedules paused at first"  # a deployment's tag in prefect.yaml
LEDGER = "tokenweight_deployments"  # a Prefect variable: ids of the deployments made from the file
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What prefect.yaml asks for."""

    deployments: tuple[str, ...]
    pools: tuple[str, ...]


def wanted_in(project: Path) -> Wanted:
    """Names of the deployments and of their work pools. UserError: there is no file, or it is none of Prefect's."""
    try:
        content = yaml.safe_load((project / FILE).read_text())
        entries = content["deployments"]
        return Wanted(
            deployments=tuple(entry["name"] for entry in entries),
            pools=tuple(dict.fromkeys(entry["work_pool"]["name"] for entry in entries)),
        )
    except FileNotFoundError:
        raise UserError(f"{project / FILE}: is not there; run this in the project's directory") from None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{project / FILE}: each deployment needs a name and a work pool's name ({reason})") from None


def bootstrap(project: Path, gpus: int | None, say: Say) -> list[str]:
    """Make what is missing on the server of PREFECT_API_URL; returns the process pools that need a worker.

    `gpus`: how many GPUs runs may hold at once; None: leave the limit as it is.
    """
    wanted = wanted_in(project)
    with get_client(sync_client=True) as client:
        pools = [name for name in wanted.pools if _make_pool(client, name, say) == ProcessWorker.type]
        if gpus is not None:
            _limit_gpus(client, gpus, say)
        _make_automations(client, say)
        before = _ledger(client)
        _deploy(project)
        made = _made(client, wanted)
        _pause(client, {name: made_id for name, made_id in made.items() if made_id not in before}, say)
        gone = sorted(before - set(made.values()))
        for deployment_id in gone:
            _delete(client, deployment_id, say)
        if before != set(made.values()):
            _keep_ledger(client, set(made.values()))
        say(f"deployments: {len(made)} of {FILE}")
    return pools


def _make_pool(client: SyncPrefectClient, name: str, say: Say) -> str:
    """Create a process pool, or find out of which type the pool is that stands there under this name."""
    try:
        return client.read_work_pool(name).type
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template))
        say(f"work pool {name}: created")
        return ProcessWorker.type


def _limit_gpus(client: SyncPrefectClient, gpus: int, say: Say) -> None:
    try:
        before = client.read_global_concurrency_limit_by_name(LIMIT)
    except ObjectNotFound:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=LIMIT, limit=gpus))
        say(f"limit {LIMIT}: {gpus}")
        return
    if before.limit != gpus:
        client.update_global_concurrency_limit(LIMIT, GlobalConcurrencyLimitUpdate(limit=gpus))
        say(f"limit {LIMIT}: {gpus}, was {before.limit}")


def _make_automations(client: SyncPrefectClient, say: Say) -> None:
    for automation in automations():
        there = client.read_automations_by_name(automation.name)
        if not there:
            client.create_automation(automation)
            say(f"automation {automation.name!r}: created")
            continue
        kept = automation.model_copy(update={"enabled": there[0].enabled})
        if _comparable(kept) != _comparable(there[0]):
            client.update_automation(there[0].id, kept)
            say(f"automation {automation.name!r}: updated")


def _comparable(automation: Any) -> dict[str, Any]:
    content: dict[str, Any] = automation.model_dump(mode="json", include={"name", "trigger", "actions", "enabled"})
    content["trigger"].pop("id", None)
    for key in ("after", "expect", "for_each"):
        content["trigger"][key] = sorted(content["trigger"][key])
    return content


def _deploy(project: Path) -> None:
    """Prefect's own `prefect deploy --all`."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    # set_working_directory in the file is made of $PWD
    environment = {**os.environ, "PWD": str(project), "PREFECT_PLUGINS_ENABLED": "false"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join((done.stdout + done.stderr).split()[-60:])
        raise StageError(f"`prefect deploy --all` failed: {last}")


def _made(client: SyncPrefectClient, wanted: Wanted) -> dict[str, str]:
    """Id of each of the file's deployments: of those with its name, the one that `prefect deploy` touched last."""
    newest: dict[str, Any] = {}
    for deployment in _all_named(client, wanted.deployments):
        other = newest.get(deployment.name)
        if other is None or deployment.updated > other.updated:
            newest[deployment.name] = deployment
    return {name: str(deployment.id) for name, deployment in newest.items()}


def _pause(client: SyncPrefectClient, new: dict[str, str], say: Say) -> None:
    """Pause the schedules of new deployments whose tag asks for it: they cost compute that nobody has asked for yet."""
    paused = []
    for name, made_id in new.items():
        deployment = client.read_deployment(UUID(made_id))
        if PAUSED_AT_FIRST in deployment.tags:
            for schedule in deployment.schedules:
                client.update_deployment_schedule(deployment.id, schedule.id, active=False)
            paused.append(name)
    if paused:
        say(f"schedules of {', '.join(paused)}: paused; resume those that you want on the deployment's page")


def _all_named(client: SyncPrefectClient, names: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    chosen = DeploymentFilter(name=DeploymentFilterName(any_=list(names)))
    while page := client.read_deployments(deployment_filter=chosen, limit=200, offset=len(found)):
        found += page
    return found


def _delete(client: SyncPrefectClient, deployment_id: str, say: Say) -> None:
    try:
        name = client.read_deployment(UUID(deployment_id)).name
        client.delete_deployment(UUID(deployment_id))
    except ObjectNotFound:
        return
    say(f"deployment {name}: deleted, it has left {FILE}")


def _ledger(client: SyncPrefectClient) -> set[str]:
    variable = client.read_variable_by_name(LEDGER)
    return set(variable.value) if variable and isinstance(variable.value, list) else set()


def _keep_ledger(client: SyncPrefectClient, ids: set[str]) -> None:
    if client.read_variable_by_name(LEDGER):
        client.update_variable(VariableUpdate(name=LEDGER, value=sorted(ids)))
    else:
        client.create_variable(VariableCreate(name=LEDGER, value=sorted(ids)))
