"""`reproduce` plans once and reports once; nothing of several targets is run before all of them are checked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("prefect", reason="NOT CHECKED: prefect is missing (extra `flows`)")

from tokenweight.commands import reproduce as command
from tokenweight.errors import UserError
from tokenweight.flows import reproduce as flows
from tokenweight.pipeline import Store
from tokenweight.planning.graph import Graph
from tokenweight.recipes import Inputs
from tokenweight.tasks import collect
from tokenweight.tasks.collect import Planned, plan_target
from tokenweight.tasks.collect import collect as collect_files


class Told:
    """In place of Prefect's logger of the run."""

    def info(self, *_: object) -> None: ...

    def warning(self, *_: object) -> None: ...


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that were run: none is in truth, and no artifact of Prefect's is made."""
    graphs: list[Graph] = []
    monkeypatch.setattr(flows, "run_graph", lambda graph, *_: graphs.append(graph) or [])
    monkeypatch.setattr(flows, "get_run_logger", Told)
    monkeypatch.setattr(flows, "publish", lambda *_: None)
    return graphs


def test_the_second_target_is_checked_before_the_first_is_run(
    ran: list[Graph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(collect, "targets_of", lambda name: ["table-9", "table-3"])
    given: dict[str, Any] = {"scale": "smoke", "store": str(tmp_path / "store"), "out": str(tmp_path / "out")}
    missing = ["evaluation.ruler.haystack=nowhere.json"]  # of Table 3, not of Table 9
    with pytest.raises(UserError, match="nowhere"):
        flows.reproduce.fn("paper", **given, settings=missing, figures=False)
    assert ran == []
    flows.reproduce.fn("paper", **given, figures=False)
    assert len(ran) == 2


def test_the_command_plans_once_and_reports_once(
    ran: list[Graph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def planned(name: str, *given: Any) -> tuple[list[Planned], list[str]]:
        calls.append("plan")
        return [plan_target(name, *given)], []

    def collected(*given: Any, **options: Any) -> Any:
        calls.append("report")
        return collect_files(*given, **options)

    for module in (collect, flows):
        monkeypatch.setattr(module, "plan_targets", planned)
        monkeypatch.setattr(module, "collect", collected)
    monkeypatch.setattr(command, "embedded", SimpleNamespace(prepare=lambda _: None, end_at_signal=lambda: None))
    monkeypatch.setattr(flows, "flow", lambda **_: lambda run: run)
    monkeypatch.setattr("tokenweight.flows.console.leave_errors_to_caller", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tokenweight", "reproduce", "table-9", "--no-figures"])
    from tokenweight.cli import main

    main()
    assert calls == ["plan", "report"]
    assert len(ran) == 1
    out = capsys.readouterr().out
    assert (tmp_path / "results/table-9.md").read_text() in out
    assert out.splitlines()[-1] == str(tmp_path / "results/table-9.json")


def test_the_flow_of_plans_has_the_parameters_of_reproduce(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = flows.flow_of_plans([plan_target("table-9", "smoke", Inputs(), store)], store, None)  # type: ignore[arg-type]
    assert made.name == flows.reproduce.name
    assert made.parameters.properties.keys() == flows.reproduce.parameters.properties.keys()
