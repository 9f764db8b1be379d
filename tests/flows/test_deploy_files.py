"""The files in deploy/: job templates of work pools, the server that stays, and the notifying automation."""

from __future__ import annotations

import asyncio
import json
import re
from configparser import ConfigParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.events.schemas.automations import AutomationCore

DEPLOY = Path(__file__).parents[2] / "deploy"
DEPLOYMENTS = yaml.safe_load((DEPLOY.parent / "prefect.yaml").read_text())["deployments"]
TEMPLATE: dict[str, Any] = json.loads((DEPLOY / "kubernetes-job-template.json").read_text())
DOCKER: dict[str, Any] = json.loads((DEPLOY / "docker-job-template.json").read_text())


def default_template(package: str, worker_type: str) -> dict[str, Any]:
    """Of a worker, as Prefect itself ships it for servers without the worker's package."""
    shipped = files("prefect") / "server/api/collections_data/views/aggregate-worker-metadata.json"
    worker = json.loads(shipped.read_text())[package][worker_type]
    template: dict[str, Any] = worker["default_base_job_configuration"]
    return template


def placeholders(value: Any) -> set[str]:
    return set(re.findall(r"{{ (\w+) }}", json.dumps(value)))


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """What stands where in a manifest, without values that are filled in."""
    if isinstance(value, dict):
        return {key: leaf for name, item in value.items() for key, leaf in leaves(item, f"{place}/{name}").items()}
    if isinstance(value, list):
        return {key: leaf for n, item in enumerate(value) for key, leaf in leaves(item, f"{place}/{n}").items()}
    return {} if "{{" in str(value) else {place: value}


def test_the_job_template_is_one_of_the_kubernetes_worker() -> None:
    default, ours = (
        default_template("prefect-kubernetes", "kubernetes")["job_configuration"],
        TEMPLATE["job_configuration"],
    )
    assert set(ours) == set(default)
    for key in set(ours) - {"job_manifest"}:
        assert ours[key] == default[key]
    # the worker refuses a manifest without these, or with others, the container's name among them
    assert leaves(default["job_manifest"]).items() <= leaves(ours["job_manifest"]).items()


def test_everything_in_the_job_template_can_be_filled_in() -> None:
    variables = TEMPLATE["variables"]["properties"]
    assert placeholders(TEMPLATE["job_configuration"]) == set(variables)
    assert set(TEMPLATE["variables"]["required"]) == {"image", "store_claim"}
    assert all("default" not in variables[name] for name in TEMPLATE["variables"]["required"])
    container = TEMPLATE["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "{{ gpus }}"


def test_the_docker_template_is_one_of_the_docker_worker() -> None:
    assert DOCKER["job_configuration"] == default_template("prefect-docker", "docker")["job_configuration"]
    assert placeholders(DOCKER["job_configuration"]) == set(DOCKER["variables"]["properties"])
    assert "required" not in DOCKER["variables"]


def test_secrets_are_named_and_never_written() -> None:
    pod = TEMPLATE["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == "{{ image_pull_secrets }}"
    assert pod["containers"][0]["envFrom"] == "{{ secret_variables }}"
    content = (DEPLOY / "compose.yaml").read_text()
    for name in ("POSTGRES_PASSWORD", "PREFECT_PASSWORD"):
        assert f"${{{name}:?set it in deploy/.env}}" in content  # compose stops without it


def test_the_services_of_the_server_that_stays_fit_together() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        for needed, given in service.get("depends_on", {}).items():
            waits_for_health = given["condition"] == "service_healthy"
            assert waits_for_health == ("healthcheck" in services[needed])
    pools = {entry["work_pool"]["name"] for entry in DEPLOYMENTS}
    for pool in pools:
        assert f"work-pool create {pool} --type process" in services["deploy"]["command"]
    assert (DEPLOY / services["worker"]["build"]["context"] / services["worker"]["build"]["dockerfile"]).is_file()
    mounted = {volume.partition(":")[2] for volume in services["worker"]["volumes"]}
    workdir = re.search(r"^WORKDIR (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert workdir is not None
    assert mounted == {f"{workdir[1]}/store", f"{workdir[1]}/results"}
    assert {volume.partition(":")[2] for volume in DOCKER["variables"]["properties"]["volumes"]["default"]} == mounted


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").glob("*.service")))
def test_a_unit_of_systemd_can_be_read(unit: str) -> None:
    content = ConfigParser(strict=False, interpolation=None)
    content.optionxform = str  # type: ignore[assignment,method-assign]
    content.read(DEPLOY / "systemd" / unit)
    assert content["Service"]["ExecStart"].startswith("DIRECTORY/.venv/bin/")
    assert content["Install"]["WantedBy"] == "multi-user.target"


def test_the_job_template_makes_a_job_with_the_workers_own_code() -> None:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="prefect-kubernetes is not installed")
    values = {"image": "registry/tokenweight:1", "store_claim": "store", "gpus": 4}
    made = worker.KubernetesWorkerJobConfiguration.from_template_and_values(TEMPLATE, values, client=object())
    manifest = asyncio.run(made).job_manifest
    assert manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 4


def test_the_notification_is_an_automation_of_our_runs() -> None:
    content = yaml.safe_load((DEPLOY / "notify-on-failure.yaml").read_text())
    automation = AutomationCore.model_validate(content)
    assert automation.trigger.match_related.model_dump()["prefect.resource.id"] == "prefect.tag.tokenweight"
    assert automation.trigger.expect == {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
