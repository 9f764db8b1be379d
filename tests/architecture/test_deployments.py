"""Every target has a deployment of the flow reproduce, and each is what `tokenweight serve` and `prefect deploy` need."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenweight.flows.serving import paused_at_first
from tokenweight.reports.targets import ALL, TARGETS

ROOT = Path(__file__).parents[2]
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    entry["name"]: entry for entry in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
}


def test_every_target_has_a_deployment() -> None:
    targets = [*TARGETS, ALL, "table-6"]  # table 6 is measured by benchmarks/ and has no recipes
    reproducing = {name for name in DEPLOYMENTS if name.startswith("reproduce-")}
    assert reproducing == {f"reproduce-{target}" for target in targets}
    for target in set(targets) - {"table-6"}:
        entry = DEPLOYMENTS[f"reproduce-{target}"]
        assert entry["entrypoint"] == "tokenweight.flows.reproduce:reproduce"
        assert entry["parameters"] == {"experiment": target, "scale": "smoke"}
    assert {"evaluate", "train-and-evaluate"} <= set(DEPLOYMENTS)


@pytest.mark.parametrize("name", sorted(DEPLOYMENTS))
def test_a_deployment_has_its_kind_and_its_parameters_can_be_filled_in(name: str) -> None:
    from prefect.utilities.callables import parameter_schema

    entry = DEPLOYMENTS[name]
    tag, kind = entry["tags"]
    assert tag == "tokenweight"
    assert kind in {"table", "figure", "paper", "planted", "evaluate", "train", "sweep"}
    assert entry["description"]
    module, _, function = entry["entrypoint"].partition(":")
    flow = getattr(import_module(module), function)
    schema = parameter_schema(flow).model_dump_for_openapi()
    assert set(entry.get("parameters", {})) <= set(schema["properties"])
    for parameter, shown in schema["properties"].items():
        assert shown.get("description"), parameter
        assert "$ref" not in str(shown), f"{parameter}: a nested object; part of it in place resets the rest"


@pytest.mark.parametrize("name", sorted(name for name, entry in DEPLOYMENTS.items() if "schedules" in entry))
def test_a_scheduled_deployment_is_paused_at_first_and_piles_up_no_runs(name: str) -> None:
    """And stays as people set it: a slug, and no `active` once the deployment is there."""
    entry = DEPLOYMENTS[name]
    assert entry["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    module, _, function = entry["entrypoint"].partition(":")
    flow = getattr(import_module(module), function)
    ((step, given),) = entry["build"][0].items()
    assert step == f"{paused_at_first.__module__}.{paused_at_first.__name__}"
    assert given == {"id": "schedule", "deployment": f"{flow.name}/{name}"}
    for schedule in entry["schedules"]:
        assert schedule["slug"]
        assert schedule["active"] == "{{ schedule.active }}"


def test_limits_are_in_the_form() -> None:
    from prefect.utilities.callables import parameter_schema

    from tokenweight.flows.evaluate import evaluate
    from tokenweight.flows.reproduce import reproduce

    shown = parameter_schema(reproduce).model_dump_for_openapi()["properties"]
    assert shown["seeds"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 100}
    shown = parameter_schema(evaluate).model_dump_for_openapi()
    assert shown["required"] == ["models"]
    assert shown["properties"]["models"]["minItems"] == 1
    assert "pmi" in shown["properties"]["benchmarks"]["description"]
