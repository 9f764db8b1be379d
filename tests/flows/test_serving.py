"""`tokenweight serve`: what people set on the server stays, nobody is taken over, dead runs get a last state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Pending, Running

from tokenweight.errors import UserError
from tokenweight.flows import serving

ROOT = Path(__file__).parents[2]
ENTRY = {
    "name": "reproduce-table-6",
    "entrypoint": "tokenweight.flows.runtimes:reproduce_table_6",
    "work_pool": {"name": "tokenweight"},
    "concurrency_limit": {"limit": 1, "collision_strategy": "CANCEL_NEW"},
}
NIGHTLY = {"slug": "nightly", "cron": "0 3 * * *"}


class Client:
    """What `serve` asks of Prefect's client, without a server."""

    def __init__(self, **deployments: Any) -> None:
        self.deployments = deployments
        self.runs: list[Any] = []
        self.asked: Any = None

    def read_deployment_by_name(self, name: str) -> Any:
        try:
            return self.deployments[name.partition("/")[2].replace("-", "_")]
        except KeyError:
            raise ObjectNotFound(KeyError(name)) from None

    def read_flow_runs(self, **chosen: Any) -> list[Any]:
        self.asked = chosen
        return [run for run in self.runs if not run.state.is_final()]

    def set_flow_run_state(self, run_id: UUID, state: Any, force: bool) -> None:
        next(run for run in self.runs if run.id == run_id).state = state


def there(**given: Any) -> SimpleNamespace:
    """A deployment as the server has it."""
    return SimpleNamespace(
        **{"id": uuid4(), "schedules": [], "paused": False, "work_pool_name": None, "version": None, **given}
    )


def schedule(slug: str | None, active: bool) -> SimpleNamespace:
    return SimpleNamespace(slug=slug, active=active, schedule=CronSchedule(cron="0 4 * * *"), parameters={})


def registered(client: Client, *schedules: dict[str, Any], take_over: bool = True) -> RunnerDeployment:
    entry = serving.Entry.model_validate({**ENTRY, "schedules": list(schedules)})
    return serving._deployment(client, entry, "host:/here", take_over)  # type: ignore[arg-type]


def active(one: RunnerDeployment) -> dict[str | None, bool | None]:
    return {item.slug: item.active for item in one.schedules or ()}


def test_a_served_deployment_leaves_its_work_pool_and_keeps_its_limit() -> None:
    deployment = registered(Client())
    sent = deployment.model_dump(exclude_unset=True)
    assert sent["work_pool_name"] is None
    assert deployment.entrypoint == "tokenweight.flows.runtimes.reproduce_table_6"
    assert deployment.concurrency_limit == 1
    assert sent["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"


def test_a_new_schedule_is_active_unless_the_deploy_step_pauses_it() -> None:
    pausing = {**NIGHTLY, "slug": "costly", "active": "{{ schedule.active }}"}
    assert active(registered(Client(), NIGHTLY, pausing)) == {"nightly": True, "costly": False}


def test_schedules_stay_as_people_set_them() -> None:
    before = there(schedules=[schedule("nightly", False), schedule("costly", True), schedule(None, True)], paused=True)
    costly = {**NIGHTLY, "slug": "costly", "active": "{{ schedule.active }}"}
    one = registered(Client(reproduce_table_6=before), NIGHTLY, costly)
    assert active(one) == {"nightly": False, "costly": True, None: True}  # the last was made on the page
    assert one.schedules[0].schedule.cron == "0 3 * * *"  # the file's
    assert one.paused


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (there(version="served from host:/other"), "is served from host:/other"),
        (there(version="served from host:/here", work_pool_name="tokenweight"), None),
        (there(version="3", work_pool_name="tokenweight"), "is of work pool tokenweight"),
        (there(version="3"), "was made by somebody else"),
    ],
)
def test_deployments_of_others_are_not_taken_over(before: Any, reason: str | None) -> None:
    client = Client(reproduce_table_6=before)
    if reason is None:
        registered(client, take_over=False)
        return
    with pytest.raises(UserError, match=rf"reproduce-table-6: {reason}; --take-over"):
        registered(client, take_over=False)


def test_of_ours_those_that_left_the_file_are_deleted() -> None:
    stays, left, other = (there(name=name, version=f"served from {name[0]}") for name in ("a1", "a2", "b"))
    deleted: list[UUID] = []
    client = SimpleNamespace(
        read_deployments=lambda limit, offset: [stays, left, other][offset : offset + limit],
        delete_deployment=deleted.append,
    )
    serving._delete_others(client, "served from a", {stays.id}, print)  # type: ignore[arg-type]
    assert deleted == [left.id]


def test_runs_whose_process_is_gone_get_a_last_state() -> None:
    client = Client()
    states = {"pending": Pending(), "running": Running(), "cancelling": Cancelling()}
    client.runs = [SimpleNamespace(id=uuid4(), name=name, state=state) for name, state in states.items()]
    said: list[str] = []
    serving.settle(client, {uuid4()}, said.append)  # type: ignore[arg-type]
    assert [run.state.name for run in client.runs] == ["Crashed", "Crashed", "Cancelled"]
    assert f"prefect flow-run retry {client.runs[1].id}" in said[1]
    asked = client.asked["flow_run_filter"].state.type.any_
    assert {state.value for state in asked} == {"PENDING", "RUNNING", "CANCELLING"}  # none that is paused or suspended


def test_a_directory_is_served_once(tmp_path: Path) -> None:
    with serving._alone("host:/here", "http://a/api"):
        second = serving._alone("host:/here", "http://a/api")
        with pytest.raises(UserError, match="another `tokenweight serve` of this directory is running"):
            second.__enter__()
        with serving._alone("host:/here", "http://b/api"):
            pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- a", "is not a list of deployments"),
        ("deployments: [{name: a}]", "a deployment: entrypoint: is missing"),
        (
            "deployments: [{name: a, entrypoint: b:c, schedules: [{cron: x}]}]",
            "a deployment: schedules.0.slug: is missing",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "prefect.yaml").write_text(content)
    with pytest.raises(UserError) as raised:
        serving.entries_in(serving.file_of(tmp_path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_repositorys_file_can_be_served() -> None:
    entries = serving.entries_in(serving.file_of(ROOT))
    assert "reproduce-table-3" in {entry.name for entry in entries}


def test_a_directory_without_a_file_is_served_the_packages_own(tmp_path: Path) -> None:
    """So that a wheel can be served anywhere; in a checkout the same file is in the project's directory."""
    assert serving.file_of(tmp_path) == Path(serving.__file__).with_name("prefect.yaml")
    assert serving.file_of(tmp_path).samefile(ROOT / "prefect.yaml")
