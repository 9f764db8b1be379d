"""`reproduce` plans once and reports once; nothing of several targets is run before all of them are checked."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prefect", reason="NOT CHECKED: prefect is missing (extra `flows`)")

from tokenweight.commands import reproduce as command
from tokenweight.errors import StageError, UserError
from tokenweight.flows import reproduce as flows
from tokenweight.flows.reproduce import Outcome
from tokenweight.pipeline.manifest import read_manifest
from tokenweight.pipeline.stage import Graph
from tokenweight.reports import writing
from tokenweight.reports.targets import find
from tokenweight.tasks.pieces import Piece
from tokenweight.training.stages import Train


class Told:
    """In place of Prefect's logger of the run."""

    def info(self, *_: object) -> None: ...

    def warning(self, *_: object) -> None: ...


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that were run: none is in truth, and no artifact of Prefect's is made."""
    graphs: list[Graph] = []
    monkeypatch.setattr(flows, "run_graph", lambda wanted, *_, **__: graphs.extend(wanted) or Outcome())
    monkeypatch.setattr(flows, "get_run_logger", Told)
    monkeypatch.setattr(flows, "publish", lambda *_: None)
    monkeypatch.setattr(writing, "holds_anything", lambda _: True)
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
    monkeypatch.setattr(command, "run_flow", flows.run_experiments)
    code, out, err = run_command(tmp_path, "reproduce", "table-9", "--no-figures", "--set", "training.steps=3")
    assert (code, err) == (0, "")
    assert len(ran) == 1
    steps = {node.stage.training.steps for node in ran[0].artifacts if isinstance(node.stage, Train)}
    assert steps == {3}
    assert (tmp_path / "results/smoke/table-9.md").read_text() in out
    assert out.splitlines()[-1] == str(tmp_path / "results/smoke/table-9.manifest.json")


def test_a_failed_piece_is_named_in_its_row_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, run_command: Any, tmp_path: Path
) -> None:
    def fail(graphs: list[Graph], *_: Any, **__: Any) -> Outcome:
        trained = graphs[0].trained["table-3/uniform"]
        piece = Piece("train table-3/uniform", "train", 0, artifacts=[trained])
        return Outcome(failed={piece: StageError("its loss is nan")})

    monkeypatch.setattr(flows, "run_graph", fail)
    monkeypatch.setattr(flows, "get_run_logger", Told)
    monkeypatch.setattr(flows, "publish", lambda *_: None)
    monkeypatch.setattr(command, "run_flow", flows.run_experiments)
    code, out, err = run_command(tmp_path, "reproduce", "table-9", "table-11", "--no-figures")
    assert (code, err) == (1, "error: train table-3/uniform: its loss is nan\n")
    assert "Failed in this run: Uniform: its loss is nan" in out
    kept = read_manifest(tmp_path / "store" / "manifests" / "table-9-smoke.json")
    assert {entry.recipe for entry in kept.rows if entry.failed} == {"table-3/uniform"}


def test_what_is_left_when_the_time_is_over_is_the_error(
    monkeypatch: pytest.MonkeyPatch, run_command: Any, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {}
    packed: list[Path] = []

    def stop(graphs: list[Graph], _store: object, _: Any, **given: Any) -> Outcome:
        asked.update(given)
        return Outcome(left=[Piece("train table-3/uniform", "train", 0, artifacts=graphs[0].artifacts[:1])])

    monkeypatch.setattr(flows, "run_graph", stop)
    monkeypatch.setattr(flows, "packed_as_it_goes", lambda root, file: nullcontext(packed.append(file)))  # type: ignore[func-returns-value]
    monkeypatch.setattr(flows, "get_run_logger", Told)
    monkeypatch.setattr(command, "run_flow", flows.run_experiments)
    code, _, err = run_command(tmp_path, "reproduce", "table-9", "--seconds", "5", "--records", "r.tar.xz")
    assert code == 1
    assert "the time limit is reached: train table-3/uniform left" in err
    assert (asked, packed) == ({"seconds": 5.0}, [Path("r.tar.xz")])


def test_a_store_of_an_earlier_version_is_refused(
    run_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "store" / "train" / "uniform-01234567"
    made.mkdir(parents=True)
    (made / "record.json").write_text('{"record_version": 1, "outputs": {}}')
    monkeypatch.setattr(command, "run_flow", lambda *_, **__: pytest.fail("it was run"))
    for command_name in ("reproduce", "report"):
        code, _, err = run_command(tmp_path, command_name, "table-9")
        assert (code, err) == (2, "error: --store store: was made by tokenweight 0.1; choose another --store\n")
