"""`tokenweight server up` and what people type against it, in a directory like a newcomer's checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling
from servers import MODEL, ROOT, Project, kill, parameters, until
from tests_pipeline import SMALL

from tokenweight.flows.automations import automations

pytestmark = pytest.mark.slow
KEPT = ("reproduce-table-3", "reproduce-table-6", "evaluate", "train-and-evaluate")
NIGHTLY = [{"slug": "nightly", "cron": "0 3 * * *"}]
NO_BLOCK = "00000000-0000-0000-0000-000000000000"
EVALUATE = {"models": [MODEL], "scale": "smoke", "benchmarks": ["mmlu"], "limit": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose server is up, with a schedule and a deployment that will leave the file."""
    made = Project(tmp_path_factory.mktemp("project"))
    made.write(KEPT[1:], made.entry("reproduce-table-3", schedules=NIGHTLY), made.entry("sweep-kappa", name="leaving"))
    try:
        made.up("--gpus", "2")
        yield made
    finally:
        made.down()
    assert made.processes() == []


@pytest.fixture
def client(project: Project) -> Iterator[SyncPrefectClient]:
    with SyncPrefectClient(project.url) as opened:
        yield opened


def names(client: SyncPrefectClient) -> set[str]:
    return {deployment.name for deployment in client.read_deployments()}


def test_up_again_prunes_what_left_the_file_and_changes_nothing_else(
    project: Project, client: SyncPrefectClient
) -> None:
    (nightly,) = client.read_deployment_by_name("reproduce/reproduce-table-3").schedules
    assert nightly.active
    client.update_deployment_schedule(
        client.read_deployment_by_name("reproduce/reproduce-table-3").id, nightly.id, active=False
    )
    crashed = automations()[-1]
    (there,) = client.read_automations_by_name(crashed.name)
    client.update_automation(there.id, crashed.model_copy(update={"enabled": False}))
    before = {process.pid for process in project.processes()}
    assert "leaving" in names(client)
    shipped = client.read_deployment_by_name("sweep/leaving")
    assert [schedule.active for schedule in shipped.schedules] == [False]  # nobody has asked for it yet

    project.write(KEPT[1:], project.entry("reproduce-table-3", schedules=NIGHTLY))
    said = project.up()
    assert "leaving: deleted" in said
    assert "created" not in said
    assert names(client) == set(KEPT)
    (schedule,) = client.read_deployment_by_name("reproduce/reproduce-table-3").schedules
    assert (schedule.slug, schedule.active) == ("nightly", False)
    assert client.read_automations_by_name(crashed.name)[0].enabled is False
    client.update_automation(there.id, crashed.model_copy(update={"enabled": True}))  # what is not set is not sent
    assert client.read_automations_by_name(crashed.name)[0].enabled
    assert client.read_global_concurrency_limit_by_name("gpu").limit == 2
    assert {process.pid for process in project.processes()} == before  # server and worker are those of before


def test_a_deployment_by_its_short_name_runs_on_the_worker(
    project: Project, client: SyncPrefectClient, workplace: Path, tmp_path: Path
) -> None:
    given = parameters(
        scale="smoke",
        store=str(workplace / "store"),
        out=str(tmp_path),
        settings=[f"{key}={value}" for key, value in SMALL.items()],
    )
    done = project.prefect("deployment", "run", "reproduce-table-3", "--watch", *given)
    assert done.returncode == 0, done.stdout + done.stderr + project.logs()
    assert "Traceback" not in done.stdout + done.stderr
    again = json.loads((tmp_path / "table-3.json").read_text())
    assert again == json.loads((workplace / "results" / "table-3.json").read_text())
    artifacts = {artifact.key: artifact for artifact in client.read_artifacts()}
    assert {"table-3-smoke", "table-3-smoke-figures"} <= set(artifacts)
    assert "| Weighting |" in artifacts["table-3-smoke"].data
    assert "table-3 smoke" in [run.name for run in client.read_flow_runs()]


def test_an_unknown_name_is_one_line(project: Project) -> None:
    done = project.prefect("deployment", "run", "reproduce-table-33")
    assert done.returncode == 1
    assert "not found" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_without_the_plugin_the_long_name_is_enough(project: Project, tmp_path: Path) -> None:
    plain = Project(tmp_path, PREFECT_API_URL=project.url, PREFECT_PLUGINS_ENABLED="false")
    assert plain.prefect("deployment", "inspect", "evaluate").returncode != 0
    assert plain.prefect("deployment", "inspect", "evaluate/evaluate").returncode == 0


def started(project: Project, place: Path) -> None:
    """Start an evaluation in a store of its own and wait until it has made something."""
    given = parameters(**{**EVALUATE, "benchmarks": ["mmlu", "ruler"]}, store=str(place / "store"), out=str(place))
    assert project.prefect("deployment", "run", "evaluate", *given).returncode == 0
    until(lambda: list((place / "store").glob("prepare/*ruler*")), 120)


def finished(client: SyncPrefectClient) -> FlowRun:
    """The last evaluation, when it is complete."""

    def last() -> FlowRun | None:
        run = next(run for run in client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC) if "evaluate" in run.name)
        return run if run.state and run.state.is_completed() else None

    run: FlowRun = until(last)
    return run


def test_a_run_that_was_killed_goes_on_by_itself(project: Project, client: SyncPrefectClient, tmp_path: Path) -> None:
    started(project, tmp_path)
    kill(next(process for process in project.processes() if "prefect.engine" in " ".join(process.cmdline())))
    assert finished(client).run_count == 2
    assert (tmp_path / "evaluation-smoke-base.md").is_file()


def test_a_run_that_down_interrupts_goes_on_after_the_next_up(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    started(project, tmp_path)
    assert list((project.directory / "server" / "concurrency_leases").glob("*.json"))  # of this deployment's only place
    project.down()
    assert project.processes() == []
    project.up()
    assert finished(client).run_count == 2
    assert (tmp_path / "evaluation-smoke-base.md").is_file()


def test_after_a_servers_death_up_starts_all_anew_and_the_run_goes_on(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    """Workers of a dead server can no longer cancel, and would run beside the new ones."""
    started(project, tmp_path)
    before = [process for process in project.processes() if "worker start" in " ".join(process.cmdline())]
    for process in filter(is_server, project.processes()):
        kill(process)
    said = project.up()
    assert "processes of a server that is gone: ended" in said
    workers = [process for process in project.processes() if "worker start" in " ".join(process.cmdline())]
    assert len(workers) == len(before)
    assert not set(workers) & set(before)
    assert finished(client).run_count == 2
    assert (tmp_path / "evaluation-smoke-base.md").is_file()


def test_after_a_power_cut_the_run_goes_on_with_the_next_up(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    """No process is there to be ended, and the server takes the run for alive."""
    started(project, tmp_path)
    for process in project.processes():
        kill(process)
    assert "interrupted, goes on where it was cut" in project.up()
    assert finished(client).run_count == 2
    assert (tmp_path / "evaluation-smoke-base.md").is_file()


def test_a_cancellation_that_was_cut_is_finished_by_the_next_up(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    started(project, tmp_path)
    run = next(run for run in client.read_flow_runs() if run.state and run.state.is_running())
    for process in project.processes():
        if not is_server(process):
            kill(process)
    client.set_flow_run_state(run.id, Cancelling(), force=True)
    other = client.create_flow_run_from_deployment(run.deployment_id, parameters=EVALUATE, state=Cancelling())
    client.update_flow_run(other.id, infrastructure_pid="4194305")  # of a worker elsewhere
    said = project.up()
    assert "the server runs already" in said
    assert f"{run.name}: cancelled" in said
    assert client.read_flow_run(run.id).state_name == "Cancelled"
    assert client.read_flow_run(other.id).state_name == "Cancelling"
    client.delete_flow_run(other.id)


def is_server(process: psutil.Process) -> bool:
    return "server" in " ".join(process.cmdline()[:6])


def test_what_cannot_be_is_told_in_one_line(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path)
    done = other.tokenweight("server", "up", "--port", str(project.port))
    assert (done.returncode, "prefect.yaml: is not there" in done.stderr) == (2, True)
    other.write(KEPT)
    done = other.tokenweight("server", "up", "--port", str(project.port))
    assert (done.returncode, "choose another" in done.stderr) == (2, True)
    done = other.tokenweight("server", "setup")
    assert (done.returncode, "PREFECT_API_URL: is not set" in done.stderr) == (2, True)
    elsewhere = Project(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api")
    done = elsewhere.tokenweight("server", "up", "--port", str(other.port))
    assert (done.returncode, "unset it" in done.stderr) == (2, True)
    done = elsewhere.tokenweight("server", "setup")
    assert (done.returncode, "no Prefect server answers" in done.stderr) == (1, True)
    assert other.processes() == []


def test_a_failed_run_is_told_by_the_documented_automation(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    told: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.end_headers()

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=receiver.serve_forever, daemon=True).start()
    with temporary_settings({PREFECT_API_URL: project.url}):
        block = CustomWebhookNotificationBlock(
            name="team",
            url=f"http://127.0.0.1:{receiver.server_port}",
            json_data={"text": "{{subject}}\n{{body}}"},
        )
        identifier = block.save("team")
    automation = tmp_path / "notify.yaml"
    automation.write_text((ROOT / "deploy" / "notify-on-failure.yaml").read_text().replace(NO_BLOCK, str(identifier)))
    created = project.prefect("automation", "create", "--from-file", str(automation))
    assert created.returncode == 0, created.stdout + created.stderr
    given = parameters(measurements=["no-such.json"], out=str(tmp_path))
    done = project.prefect("deployment", "run", "reproduce-table-6", "--watch", *given)
    assert done.returncode == 1
    run = next(run for run in client.read_flow_runs() if run.name == "table-6")
    logs = until(
        lambda: [log for log in client.read_logs() if log.flow_run_id == run.id and "no-such" in log.message], 60
    )
    assert all("Traceback" not in log.message for log in logs)  # a user's mistake is one line
    assert logs[0].message.startswith("measurements: no-such.json names no file")
    message = json.loads(until(lambda: told and told[0], 60))["text"]
    receiver.shutdown()
    assert message.startswith("table-6: Failed\ntable-6 of deployment reproduce-table-6: Failed")
    assert "names no file" in message
    assert f"http://127.0.0.1:{project.port}/runs/flow-run/" in message
