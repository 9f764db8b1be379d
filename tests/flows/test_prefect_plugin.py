"""`prefect deployment run NAME` without the flow's name, and a plugin that never breaks Prefect."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.plugins import HookContext

from tokenweight.flows import prefect_plugin

ROOT = Path(__file__).parents[2]


def deployment(name: str, flow: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, flow=flow)


class Client:
    """A client with the two methods that the plugin uses; `read_deployment_by_name` as strict as Prefect's."""

    deployments = (
        deployment("reproduce-table-3", "reproduce-table-3"),
        deployment("sweep-kappa", "sweep"),
        deployment("twice", "a"),
        deployment("twice", "b"),
    )

    async def read_deployments(self, *, deployment_filter: Any) -> list[SimpleNamespace]:
        return [one for one in self.deployments if one.name in deployment_filter.name.any_]

    async def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        flow, own = name.split("/")
        return next(one for one in self.deployments if (one.flow, one.name) == (flow, own))


@pytest.mark.parametrize("name", ["reproduce-table-3", "sweep-kappa", "sweep/sweep-kappa", "b/twice"])
def test_a_name_alone_is_enough_where_it_says_which(name: str) -> None:
    read = prefect_plugin._by_short_name(Client.read_deployment_by_name)
    found = asyncio.run(read(Client(), name))
    assert f"{found.flow}/{found.name}".endswith(name)


@pytest.mark.parametrize("name", ["reproduce-tabel-3", "twice"])
def test_an_unknown_or_ambiguous_name_is_left_to_prefect(name: str) -> None:
    asked = []

    async def read(client: Client, name: str) -> None:
        asked.append(name)
        raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(prefect_plugin._by_short_name(read)(Client(), name))
    assert asked == [f"{name}/{name}"]  # which Prefect answers with "not found", not with a traceback


def test_prefects_client_has_the_method_and_is_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefectClient, prefect_plugin.READ, getattr(PrefectClient, prefect_plugin.READ))
    prefect_plugin.allow_short_names()
    first = getattr(PrefectClient, prefect_plugin.READ)
    prefect_plugin.allow_short_names()
    assert getattr(PrefectClient, prefect_plugin.READ) is first
    assert first.__wrapped__.__name__ == prefect_plugin.READ


def context(api_url: str | None) -> HookContext:
    return HookContext(prefect_version="3.9.1", api_url=api_url, logger_factory=logging.getLogger)


def test_a_changed_prefect_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_plugin, "READ", "no_such_method")
    assert prefect_plugin.setup_environment(ctx=context(None)) is None


def test_deployment_run_prints_the_server_that_it_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prefect_plugin, "allow_short_names", lambda: None)
    monkeypatch.setattr(prefect_plugin, "answers", lambda url: "nobody" not in url)
    monkeypatch.setattr(sys, "argv", ["prefect", "--no-prompt", "deployment", "run", "reproduce-table-3"])
    assert prefect_plugin.setup_environment(ctx=context("http://team:4200/api")) is None
    assert capsys.readouterr().err.startswith("server: http://team:4200 (")
    found = prefect_plugin.setup_environment(ctx=context(None))  # Prefect alone would start a server of its own
    assert found is not None
    assert found.env["PREFECT_API_URL"].endswith("/api")
    with pytest.raises(SystemExit, match="no Prefect server answers at http://nobody:4200/api"):
        prefect_plugin.setup_environment(ctx=context("http://nobody:4200/api"))


def test_other_commands_find_the_server_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_plugin, "allow_short_names", lambda: None)
    monkeypatch.setattr(sys, "argv", ["prefect", "flow-run", "retry", "7"])
    monkeypatch.setattr(prefect_plugin, "answers", lambda url: True)
    assert prefect_plugin.setup_environment(ctx=context(None)) is not None
    assert prefect_plugin.setup_environment(ctx=context("http://team:4200/api")) is None
    monkeypatch.setattr(prefect_plugin, "answers", lambda url: False)
    assert prefect_plugin.setup_environment(ctx=context(None)) is None


def test_a_workers_processes_have_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_plugin, "allow_short_names", lambda: None)
    monkeypatch.setattr(prefect_plugin, "answers", lambda url: True)
    monkeypatch.setattr(sys, "argv", ["prefect", "worker", "start", "--pool", "any"])
    found = prefect_plugin.setup_environment(ctx=context("http://team:4200/api"))
    assert found is not None
    assert found.env == {"PREFECT_PLUGINS_ENABLED": "false"}


@pytest.mark.parametrize("command", [["prefect", "server", "start"], ["pytest", "deployment", "run"]])
def test_other_commands_are_plain_prefect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setattr(prefect_plugin, "allow_short_names", lambda: None)
    monkeypatch.setattr(prefect_plugin, "answers", lambda url: False)
    monkeypatch.setattr(sys, "argv", command)
    assert prefect_plugin.setup_environment(ctx=context("http://nobody:4200/api")) is None
    assert capsys.readouterr().err == ""


CODE = (
    "import prefect; from prefect.client.orchestration import PrefectClient as c; print(hasattr(c.{}, '__wrapped__'))"
)


def test_prefect_loads_it_in_the_projects_directory() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_PLUGINS_ENABLED"}
    code = CODE.format(prefect_plugin.READ)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr.strip()) == ("True", "")
