"""The files in deploy/: the Kubernetes job template and the notifying automation."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.events.schemas.automations import AutomationCore

from tokenweight.flows.automations import TAG

DEPLOY = Path(__file__).parents[2] / "deploy"
TEMPLATE: dict[str, Any] = json.loads((DEPLOY / "kubernetes" / "job-template.json").read_text())


def default_template() -> dict[str, Any]:
    """Of the Kubernetes worker, as Prefect itself ships it for servers without prefect-kubernetes."""
    shipped = files("prefect") / "server/api/collections_data/views/aggregate-worker-metadata.json"
    worker = json.loads(shipped.read_text())["prefect-kubernetes"]["kubernetes"]
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
    default, ours = default_template()["job_configuration"], TEMPLATE["job_configuration"]
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


def test_the_job_template_makes_a_job_with_the_workers_own_code() -> None:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="prefect-kubernetes is not installed")
    values = {"image": "registry/tokenweight:1", "store_claim": "store", "gpus": 4}
    made = worker.KubernetesWorkerJobConfiguration.from_template_and_values(TEMPLATE, values, client=object())
    manifest = asyncio.run(made).job_manifest
    assert manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 4


def test_the_notification_is_an_automation_of_our_runs() -> None:
    content = yaml.safe_load((DEPLOY / "notify-on-failure.yaml").read_text())
    automation = AutomationCore.model_validate(content)
    assert automation.trigger.match_related.model_dump()["prefect.resource.id"] == f"prefect.tag.{TAG}"
    assert automation.trigger.expect == {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
