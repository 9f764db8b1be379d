"""`tokenweight store`: what it lists, what it finds damaged, what it removes and what it never does."""

import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_stores import CHUNKS, MODEL, OTHER, UNIT, kinds, make, one, run, write

from tokenweight.errors import StageError
from tokenweight.pipeline.inventory import Removal, garbage, inventory, remove, unneeded, weights
from tokenweight.pipeline.locks import is_held, shared_lock
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Store, read_record


def test_leftovers_go_and_every_artifact_stays(store: Store) -> None:
    assert sorted(kinds(store).values()) == ["partial", "set aside"]
    before = {entry.address: entry.bytes for entry in inventory(store.root) if entry.kind == "complete"}
    assert len(before) == 5
    assert all(remove(store.root, removal) for removal in garbage(inventory(store.root)))
    assert list(kinds(store).values()) == ["partial"]  # the next run goes on from it
    assert all(remove(store.root, removal) for removal in garbage(inventory(store.root), unfinished=True))
    assert kinds(store) == {}
    assert {entry.address: entry.bytes for entry in inventory(store.root)} == before
    assert list(store.root.glob("*/.*")) == []


def test_what_a_living_run_is_making_is_not_garbage_and_is_not_removed(store: Store) -> None:
    stale = next(removal for removal in garbage(inventory(store.root), unfinished=True) if "interrupted" in removal.why)
    with store.building(Identity("train", 1, "cut", {"steps": 4})) as work:
        assert work is not None
        entries = inventory(store.root)
        assert [removal.entry.kind for removal in garbage(entries, unfinished=True)] == ["set aside"]
        assert not remove(store.root, stale)  # listed before the run began
        assert (work.directory / "rows.parquet").exists()
        write(work)
    assert not remove(store.root, stale)


def test_a_kept_artifact_keeps_what_it_was_made_from(store: Store) -> None:
    (unfinished,) = (entry for entry in inventory(store.root) if entry.kind == "partial")
    cut_one = Identity("train", 1, "cut", {"steps": 4})
    kept_too = unneeded(inventory(store.root), [UNIT.fingerprint, cut_one.fingerprint])
    assert unfinished.path not in [removal.entry.path for removal in kept_too]
    gone = unneeded(inventory(store.root), [UNIT.fingerprint])
    assert sorted(removal.entry.name.rpartition("-")[0] for removal in gone) == ["cut", "sparse", "torn"]
    for removal in gone:
        assert remove(store.root, removal)
    assert [store.state(identity).kind for identity in (CHUNKS, MODEL, UNIT)] == ["complete"] * 3
    assert store.state(OTHER).kind == "missing"


def test_weights_go_records_stay_and_are_made_again_when_needed(store: Store) -> None:
    (found,) = weights(inventory(store.root), needed=())
    assert found.entry.path == store.path(MODEL)  # of the other model nothing was made yet
    assert not list(weights(inventory(store.root), needed=[MODEL.fingerprint]))
    record = read_record(store.path(MODEL))
    assert remove(store.root, found)
    assert store.state(MODEL).kind == "weights removed"
    assert "weights were removed" in store.state(MODEL).reason
    assert read_record(store.path(MODEL)) == record
    assert (store.path(MODEL) / "model" / "config.json").exists()
    assert kinds(store)[store.path(MODEL).name] == "weights removed"
    assert not list(weights(inventory(store.root), needed=()))
    assert not list(garbage([one(store, MODEL)]))

    notes: list[str] = []
    with store.building(MODEL, note=notes.append) as work:
        assert work is not None
        write(work)
    path = store.path(MODEL)
    assert notes == []
    assert store.state(MODEL, digests=True).kind == "complete"
    assert sorted(file.name for file in path.parent.iterdir() if "uniform" in file.name) == [path.name]


def test_weights_that_were_put_back_are_whole_again(store: Store) -> None:
    file = store.path(MODEL) / "model" / "model.safetensors"
    content = file.read_text()
    (found,) = weights(inventory(store.root), needed=())
    remove(store.root, found)
    file.write_text(content)
    assert store.state(MODEL, digests=True).kind == "complete"
    file.write_text(content[1:])
    assert store.state(MODEL).kind == "damaged"


def test_a_plan_says_that_the_weights_are_gone(store: Store) -> None:
    from tokenweight.pipeline.stage import Graph
    from tokenweight.planning.plan import schedule

    @dataclass(eq=False)
    class Made:
        """As much of an artifact as a schedule reads."""

        identity: Identity
        parents: tuple[Any, ...] = ()
        stage: None = None

    model = Made(MODEL)
    unit = Made(UNIT, (model,))
    again = Made(Identity("evaluate", 1, "u", {"unit": "planted/x"}, UNIT.inputs), (model,))
    (found,) = weights(inventory(store.root), needed=())
    remove(store.root, found)
    graphs = [Graph(artifacts=[model, *leaves], evaluations={"r": leaves}) for leaves in ([unit], [unit, again])]  # type: ignore[list-item]
    steps = [schedule(graph, store)[0] for graph in graphs]
    assert [step.action for step in steps] == ["reuse", "run"]
    assert all("weights were removed" in step.reason for step in steps)


def test_a_clean_up_that_is_killed_leaves_nothing_half_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after the rename the artifact is gone, and the next clean-up takes the rest."""

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokenweight.pipeline.inventory.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove(store.root, Removal(one(store, OTHER), "", 1))
    monkeypatch.undo()
    assert store.state(OTHER).kind == "missing"
    assert "half removed" in kinds(store).values()
    assert all(remove(store.root, removal) for removal in garbage(inventory(store.root), unfinished=True))
    assert kinds(store) == {}

    (found,) = weights(inventory(store.root), needed=())
    unlink = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda path, **how: killed(path) if path.suffix == ".safetensors" else unlink(path, **how)
    )
    with pytest.raises(KeyboardInterrupt):
        remove(store.root, found)
    monkeypatch.undo()
    assert store.state(MODEL).kind == "complete"  # listed as removed, still there


@pytest.mark.parametrize("how", ["record", "size", "gone", "content", "moved"])
def test_verify_names_the_damage(
    store: Store, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.path(MODEL)
    record = json.loads((path / "record.json").read_text())
    match how:
        case "record":
            record["config"]["steps"] = 4
            del record["sha256"]  # as in stores of before
            (path / "record.json").write_text(json.dumps(record))
        case "size":
            (path / "rows.parquet").write_text("x")
        case "gone":
            (path / "rows.parquet").unlink()
        case "content":
            file = path / "rows.parquet"
            file.write_text(file.read_text().upper())
        case "moved":
            path.rename(path.with_name("uniform-01234567"))
    digests = ["--digests"] if how == "content" else []
    if digests:
        assert run(capsys, monkeypatch, "store", "verify", "--store", store.root)[0] == 0
    code, told = run(capsys, monkeypatch, "store", "verify", "--store", store.root, *digests)
    assert code == 1
    said = {"record": "record was changed", "size": "bytes, not", "gone": "is gone", "content": "other contents",
            "moved": "another address"}  # fmt: skip
    assert f"damaged: train/uniform-{'01234567' if how == 'moved' else MODEL.fingerprint[:8]}" in told
    assert said[how] in told
    assert "1 damaged" in told


def test_gc_lists_first_and_removes_with_yes(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenweight.commands.store._needs", lambda *_: pytest.fail("no target was named"))
    here = ("store", "gc", "--store", store.root)
    code, told = run(capsys, monkeypatch, *here)
    assert code == 0
    assert "1 would be removed" in told
    assert "1 unfinished, 109 bytes, kept" in told
    here = (*here, "--unfinished")
    told = run(capsys, monkeypatch, *here)[1]
    assert "2 would be removed" in told
    assert "kept" not in told
    assert "--yes" in told
    assert len(kinds(store)) == 2
    assert "0 would be removed" in run(capsys, monkeypatch, *here, "--older-than", "1")[1]
    code, told = run(capsys, monkeypatch, *here, "--weights", "--yes", "--json")
    assert [row["removed"] for row in json.loads(told)] == [True, True, True]
    assert list(kinds(store).values()) == ["weights removed"]
    assert run(capsys, monkeypatch, "store", "verify", "--store", store.root)[0] == 0


def test_gc_keeps_what_the_targets_need(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenweight.recipes.inputs import Inputs
    from tokenweight.tasks.experiments import plan_texts

    graph = plan_texts(["table-9"], "smoke", Inputs(), store)[0][0].graph
    kept = next(node.identity for node in graph.artifacts if node.stage.name == "chunk")
    make(store, kept)
    options = ("store", "gc", "--store", store.root, "--keep-targets", "table-9", "--yes")
    monkeypatch.setattr("tokenweight.pipeline.locks._RUNS", "not/there")  # as on a disk that is read-only
    code, told = run(capsys, monkeypatch, *options)
    assert (code, "cannot be written" in told) == (2, True), told
    monkeypatch.setattr("tokenweight.pipeline.locks._RUNS", "runs.lock")
    with shared_lock(store.root):
        code, told = run(capsys, monkeypatch, *options)
        assert code == 2
        assert "a run is using it" in told
    assert store.state(MODEL).kind == "complete"
    code, told = run(capsys, monkeypatch, *options)
    assert code == 0, told
    assert [entry.path for entry in inventory(store.root)] == [store.path(kept)]


def test_ls_names_states_and_targets(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenweight.recipes.inputs import Inputs
    from tokenweight.tasks.experiments import plan_texts

    graph = plan_texts(["table-9"], "smoke", Inputs(), store)[0][0].graph
    make(store, *[node.identity for node in graph.artifacts if node.stage.name in ("chunk", "evaluate")][:4])
    only = ("store", "ls", "--store", store.root, "--target", "table-9")
    code, told = run(capsys, monkeypatch, *only, "--json")
    rows = json.loads(told)
    assert {row["stage"] for row in rows} == {"chunk", "evaluate"}
    assert {row["fingerprint"] for row in rows} <= {node.fingerprint for node in graph.artifacts}
    code, told = run(capsys, monkeypatch, "store", "ls", "--store", store.root)
    assert code == 0
    assert "uniform--... (1)" in told
    assert "[partial]" in told
    assert "[set aside]" in told
    recipe = ("--target", "table-3/uniform@mmlu,bbh")
    assert run(capsys, monkeypatch, "store", "ls", "--store", store.root, *recipe)[0] == 0
    assert run(capsys, monkeypatch, "store", "ls", "--store", store.root, "--state", "bad")[0] == 2
    assert run(capsys, monkeypatch, "store", "ls", "--store", store.root / "no")[0] == 2


def test_an_empty_leftover_goes_without_being_asked_for(store: Store) -> None:
    with pytest.raises(StageError), store.building(Identity("evaluate", 1, "empty", {"unit": "x"})):
        raise StageError("power cut")
    gone = [removal.why for removal in garbage(inventory(store.root))]
    assert sorted(gone) == ["an interrupted run left it empty", "was found damaged, and set aside"]


def test_what_goes_on_to_make_removed_weights_again_is_kept(store: Store) -> None:
    (found,) = weights(inventory(store.root), needed=())
    assert remove(store.root, found)
    partial = store.partial(MODEL)
    (partial / "checkpoints").mkdir(parents=True)
    (partial / "checkpoints" / "step-8").write_text("x")
    assert partial not in {removal.entry.path for removal in garbage(inventory(store.root))}


def test_what_a_clean_up_removes_is_held_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that begins just then would find half of it."""
    held, rmtree = list[bool](), shutil.rmtree
    monkeypatch.setattr(
        "tokenweight.pipeline.inventory.shutil.rmtree",
        lambda path: (held.append(is_held(store.root, "train", OTHER.fingerprint)), rmtree(path)),
    )
    assert remove(store.root, Removal(one(store, OTHER), "", 1))
    assert held == [True]


def test_a_holder_elsewhere_that_is_silent_for_minutes_loses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease could be taken after a minute: so it is not even asked for."""
    cut_one = Identity("train", 1, "cut", {"steps": 4})
    (listed,) = (entry for entry in inventory(store.root) if entry.kind == "partial")
    with store.building(cut_one) as work:
        assert work is not None
        monkeypatch.setattr("tokenweight.pipeline.inventory.lease", lambda *_: pytest.fail("was asked for"))
        assert not remove(store.root, Removal(listed, "", 1))
        write(work)


def test_contents_are_read_only_where_that_is_asked_for(store: Store) -> None:
    file = store.path(MODEL) / "rows.parquet"
    file.write_text(file.read_text().upper())
    name = store.path(MODEL).name
    assert name not in kinds(store)
    assert kinds(store, digests=True)[name] == "damaged"


def test_what_a_run_left_that_another_finished_goes_and_the_model_stays(store: Store) -> None:
    (store.partial(OTHER) / "checkpoints").mkdir(parents=True)
    (store.partial(OTHER) / "checkpoints" / "state").write_text("123")
    found = {removal.entry.path: removal for removal in garbage(inventory(store.root))}
    assert (found[store.partial(OTHER)].why, found[store.partial(OTHER)].bytes) == ("its artifact is finished", 3)
    assert all(remove(store.root, removal) for removal in found.values())
    assert store.state(MODEL, digests=True).kind == store.state(OTHER).kind == "complete"
    assert {store.path(MODEL), store.path(OTHER)}.isdisjoint(found)


def test_ages_are_those_of_the_record_or_of_the_newest_file(store: Store) -> None:
    for path in (*store.root.rglob("*/*"), *store.root.glob("*")):
        os.utime(path, (1000, 1000))
    (left,) = (entry for entry in inventory(store.root) if entry.kind == "partial")
    assert left.changed == datetime.fromtimestamp(1000, UTC)
    os.utime(left.path / "model" / "config.json", (2000, 2000))
    (left,) = (entry for entry in inventory(store.root) if entry.kind == "partial")
    assert left.changed == datetime.fromtimestamp(2000, UTC)
    record = read_record(store.path(MODEL))
    assert record is not None
    assert one(store, MODEL).changed == datetime.fromisoformat(record["started"])
