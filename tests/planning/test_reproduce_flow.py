"""`reproduce` plans once and reports once; nothing of several targets is run before all of them are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prefect", reason="NOT CHECKED: prefect is missing (extra `flows`)")

from tokenweight.commands import reproduce as command
from tokenweight.errors import UserError
from tokenweight.flows import reproduce as flows
from tokenweight.flows.run import Outcome
from tokenweight.planning.graph import Graph
from tokenweight.reports import write_results
from tokenweight.reports.targets import find
from tokenweight.training.stages import Train


class Told:
    """In place of Prefect's logger of the run."""

    def info(self, *_: object) -> None: ...

    def warning(self, *_: object) -> None: ...


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that were run: none is in truth, and no artifact of Prefect's is made."""
    graphs: list[Graph] = []
    monkeypatch.setattr(flows, "run_graph", lambda graph, *_: graphs.append(graph) or Outcome())
    monkeypatch.setattr(flows, "get_run_logger", Told)
    monkeypatch.setattr(flows, "publish", lambda *_: None)
    monkeypatch.setattr(write_results, "holds_anything", lambda _: True)
    return graphs


def test_the_second_target_is_checked_before_the_first_is_run(
    ran: list[Graph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(find, "targets_of", lambda name: ["table-9", "table-3"])
    given: dict[str, Any] = {"scale": "smoke", "store": tmp_path / "store", "out": tmp_path / "out"}
    missing = ["evaluation.ruler.haystack=nowhere.json"]  # of Table 3, not of Table 9
    with pytest.raises(UserError, match="nowhere"):
        flows.reproduce.fn("paper", **given, settings=missing, figures=False)
    assert ran == []
    flows.reproduce.fn("paper", **given, figures=False)
    assert len(ran) == 2


def test_the_command_runs_the_flow_and_prints_its_table(
    ran: list[Graph], monkeypatch: pytest.MonkeyPatch, run_command: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "run_flow", lambda _root, _flow, **given: flows.reproduce.fn(**given))
    code, out, err = run_command(tmp_path, "reproduce", "table-9", "--no-figures", "--set", "training.steps=3")
    assert (code, err) == (0, "")
    assert len(ran) == 1
    steps = {node.stage.training.steps for node in ran[0].artifacts if isinstance(node.stage, Train)}
    assert steps == {3}
    assert (tmp_path / "results/smoke/table-9.md").read_text() in out
    assert out.splitlines()[-1] == str(tmp_path / "results/smoke/table-9.manifest.json")
