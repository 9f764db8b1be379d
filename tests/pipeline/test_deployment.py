"""`tokenweight serve` and what people type against it, in a directory like a newcomer's checkout."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Suspended
from servers import MODEL, ROOT, Project, end, parameters, until
from tests_pipeline import SMALL

pytestmark = pytest.mark.slow
KEPT = ("reproduce-table-3", "reproduce-table-6", "evaluate", "sweep-kappa")
NIGHTLY = [{"slug": "nightly", "cron": "0 3 * * *"}]
NO_BLOCK = "00000000-0000-0000-0000-000000000000"
EVALUATE = {"models": [MODEL], "scale": "smoke", "benchmarks": ["mmlu", "ruler"], "limit": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project and its server; each test serves it."""
    made = Project(tmp_path_factory.mktemp("project"))
    made.write(KEPT)
    server = made.start_server()
    try:
        yield made
    finally:
        end(server)
    assert made.processes() == []


@pytest.fixture
def client(project: Project) -> Iterator[SyncPrefectClient]:
    with SyncPrefectClient(project.url) as opened:
        yield opened


@pytest.fixture
def served(project: Project) -> Iterator[Project]:
    serving = project.serve()
    yield project
    end(serving)


def active(client: SyncPrefectClient, name: str) -> dict[str | None, bool]:
    return {one.slug: one.active for one in client.read_deployment_by_name(name).schedules}


def test_schedules_stay_as_people_set_them_and_what_left_the_file_goes(
    project: Project, client: SyncPrefectClient
) -> None:
    project.write(
        KEPT[1:], project.entry("reproduce-table-3", schedules=NIGHTLY), project.entry("evaluate", name="leaving")
    )
    end(project.serve())
    table = client.read_deployment_by_name("reproduce/reproduce-table-3")
    sweep = client.read_deployment_by_name("reproduce/sweep-kappa")
    assert active(client, "reproduce/reproduce-table-3") == {"nightly": True}
    assert active(client, "reproduce/sweep-kappa") == {"saturdays": False}  # nobody has asked for it yet
    client.update_deployment_schedule(table.id, table.schedules[0].id, active=False)
    client.update_deployment_schedule(sweep.id, sweep.schedules[0].id, active=True)
    project.write(KEPT[1:], project.entry("reproduce-table-3", schedules=NIGHTLY))
    end(project.serve(), signal.SIGINT, group=True)
    assert "deployment leaving: deleted, because prefect.yaml no longer has it" in project.said()
    assert {deployment.name for deployment in client.read_deployments()} == set(KEPT)
    assert active(client, "reproduce/reproduce-table-3") == {"nightly": False}
    assert active(client, "reproduce/sweep-kappa") == {"saturdays": True}
    project.write(KEPT)


def test_a_deployment_by_its_short_name(
    served: Project, client: SyncPrefectClient, workplace: Path, tmp_path: Path
) -> None:
    given = parameters(
        scale="smoke", store=str(workplace / "store"), out=str(tmp_path),
        settings=[f"{key}={value}" for key, value in SMALL.items()],
    )  # fmt: skip
    done = served.prefect("deployment", "run", "reproduce-table-3", "--watch", *given)
    assert done.returncode == 0, done.stdout + done.stderr + served.logs()
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.startswith(f"server: {served.url.removesuffix('/api')} (default")
    (table,) = tmp_path.rglob("table-3.json")
    (before,) = (workplace / "results").rglob("table-3.json")
    assert json.loads(table.read_text()) == json.loads(before.read_text())
    artifacts = {artifact.key: artifact for artifact in client.read_artifacts()}
    assert {"table-3-smoke", "table-3-smoke-figures"} <= set(artifacts)
    assert "| Weighting |" in artifacts["table-3-smoke"].data
    unknown = served.prefect("deployment", "run", "reproduce-table-33")
    assert unknown.returncode == 1
    assert "not found" in unknown.stdout + unknown.stderr
    assert "Traceback" not in unknown.stdout + unknown.stderr


def started(project: Project, client: SyncPrefectClient, place: Path) -> FlowRun:
    """Start an evaluation in a store of its own and wait until it has made something."""
    given = parameters(**EVALUATE, store=str(place / "store"), out=str(place))
    assert project.prefect("deployment", "run", "evaluate", *given).returncode == 0
    until(lambda: list((place / "store").glob("prepare/*")), 180)
    return next(run for run in client.read_flow_runs() if run.state and run.state.is_running())


def test_a_killed_serve_takes_its_runs_along_and_the_next_settles_them(
    project: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    serving = project.serve()
    run = started(project, client, tmp_path)
    evaluate = client.read_deployment_by_name("evaluate/evaluate")
    cancelling = client.create_flow_run_from_deployment(evaluate.id, parameters=EVALUATE, state=Cancelling())
    suspended = client.create_flow_run_from_deployment(evaluate.id, parameters=EVALUATE, state=Suspended())
    end(serving, signal.SIGKILL)
    until(lambda: not project.processes(), 30)
    serving = project.serve()
    assert client.read_flow_run(run.id).state_name == "Crashed"  # as its own process said, or the new serve says
    assert client.read_flow_run(cancelling.id).state_name == "Cancelled"
    assert client.read_flow_run(suspended.id).state_name == "Suspended"
    done = project.prefect("flow-run", "retry", str(run.id))
    assert done.returncode == 0, done.stdout
    until(lambda: client.read_flow_run(run.id).state_name == "Completed")
    assert list(tmp_path.rglob("evaluation-smoke-base.md"))
    end(serving)


def test_ctrl_c_cancels_what_runs(project: Project, client: SyncPrefectClient, tmp_path: Path) -> None:
    serving = project.serve()
    run = started(project, client, tmp_path)
    end(serving, signal.SIGINT, group=True)
    assert client.read_flow_run(run.id).state_name == "Cancelled"
    assert project.processes() == []


def test_nobody_is_taken_over_unasked(served: Project, tmp_path: Path) -> None:
    again = served.tokenweight("serve")
    assert (again.returncode, "another `tokenweight serve` of this directory is running" in again.stderr) == (2, True)
    other = Project(tmp_path, PREFECT_API_URL=served.url)
    other.write(KEPT)
    done = other.tokenweight("serve")
    assert (done.returncode, "is served from" in done.stderr, str(served.directory) in done.stderr) == (2, True, True)
    nowhere = Project(tmp_path)  # at a port where nobody listens
    for command in (nowhere.tokenweight("serve"), nowhere.prefect("deployment", "run", "evaluate")):
        assert command.returncode != 0
        assert f"no Prefect server answers at {nowhere.url}" in command.stderr
        assert "Traceback" not in command.stderr


def test_plain_prefect_deploys_for_workers(project: Project, client: SyncPrefectClient) -> None:
    plain = Project(project.directory, PREFECT_API_URL=project.url, PREFECT_PLUGINS_ENABLED="false")
    for pool in ("tokenweight", "tokenweight-members"):
        assert plain.prefect("work-pool", "create", pool, "--type", "process").returncode == 0
    client.delete_deployment(client.read_deployment_by_name("reproduce/sweep-kappa").id)
    for resumed in (False, True):
        done = plain.prefect("deploy", "--all")
        assert done.returncode == 0, done.stdout + done.stderr
        assert active(client, "reproduce/sweep-kappa") == {"saturdays": resumed}
        sweep = client.read_deployment_by_name("reproduce/sweep-kappa")
        assert sweep.work_pool_name == "tokenweight"
        client.update_deployment_schedule(sweep.id, sweep.schedules[0].id, active=True)
    done = plain.tokenweight("serve")
    assert (done.returncode, "is of work pool tokenweight; --take-over" in done.stderr) == (2, True)
    end(project.serve("--take-over"))
    assert client.read_deployment_by_name("reproduce/sweep-kappa").work_pool_name is None


def test_a_failed_run_is_told_by_the_documented_automation(
    served: Project, client: SyncPrefectClient, tmp_path: Path
) -> None:
    told: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.end_headers()

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=receiver.serve_forever, daemon=True).start()
    with temporary_settings({PREFECT_API_URL: served.url}):
        block = CustomWebhookNotificationBlock(
            name="team",
            url=f"http://127.0.0.1:{receiver.server_port}",
            json_data={"text": "{{subject}}\n{{body}}"},
        )
        identifier = block.save("team")
    automation = tmp_path / "notify.yaml"
    automation.write_text((ROOT / "deploy" / "notify-on-failure.yaml").read_text().replace(NO_BLOCK, str(identifier)))
    created = served.prefect("automation", "create", "--from-file", str(automation))
    assert created.returncode == 0, created.stdout + created.stderr
    given = parameters(measurements=["no-such.json"], out=str(tmp_path))
    done = served.prefect("deployment", "run", "reproduce-table-6", "--watch", *given)
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
    assert f"http://127.0.0.1:{served.port}/runs/flow-run/" in message
