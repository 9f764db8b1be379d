"""The records of a store as one file: what it holds, and where it cannot be written."""

import tarfile
import time
from pathlib import Path

import pytest
from made_stores import MODEL, OTHER, UNIT, run

from tokenweight.errors import UserError
from tokenweight.pipeline import archive
from tokenweight.pipeline.store import Store
from tokenweight.tasks import experiments


def test_packed_records_are_all_that_finished_and_hold_no_weights(
    store: Store,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    code, told = run(capsys, monkeypatch, "store", "pack", outside / "records.tar.xz", "--store", store.root)
    assert (code, "records of 5 artifacts" in told) == (0, True), told
    with tarfile.open(outside / "records.tar.xz") as archive:
        archive.extractall(outside / "elsewhere", filter="data")
    elsewhere = Store(outside / "elsewhere")
    assert elsewhere.state(UNIT).kind == "complete"
    assert not list(elsewhere.root.rglob("*.safetensors"))
    assert elsewhere.state(MODEL).kind == "weights removed"
    assert run(capsys, monkeypatch, "store", "verify", "--store", elsewhere.root)[0] == 0
    again = outside / "again.tar.xz"
    assert run(capsys, monkeypatch, "store", "pack", again, "--store", elsewhere.root)[0] == 0
    with tarfile.open(outside / "records.tar.xz") as first, tarfile.open(again) as second:
        assert sorted(first.getnames()) == sorted(second.getnames())
        members = first.getmembers()
        assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


def test_files_of_one_task_by_all_models_are_packed_side_by_side() -> None:
    """Their contents are alike, which makes half of the archive."""
    units = ["a--mmlu-00000000", "a--ruler-00000000", "b--mmlu-00000000"]
    paths = [Path("evaluate", unit, name) for unit in units for name in ("record.json", "samples.parquet")]
    packed = [f"{path.parent.name[:8]} {path.name}" for path in sorted(paths, key=archive._alike)]
    order = ["a--mmlu-", "b--mmlu-", "a--ruler"]
    assert packed == [f"{unit} {name}" for name in ("record.json", "samples.parquet") for unit in order]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("none/records.tar.xz", "none is not a directory that can be written to"),
        ("records.zip", "the archive needs the suffix .tar.xz"),
        ("folder.tar.xz", "exists and is not a file"),
        ("chunk/records.tar.xz", "lies in the store"),
    ],
)
def test_a_place_where_records_cannot_be_packed_is_one_line(
    place: str, said: str, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.root / "folder.tar.xz").mkdir()
    code, told = run(capsys, monkeypatch, "store", "pack", store.root / place, "--store", store.root)
    assert (code, said in told) == (2, True), told


def test_a_pack_that_fails_leaves_nothing_and_an_empty_store_has_no_records(
    store: Store,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, empty = tmp_path_factory.mktemp("place"), tmp_path_factory.mktemp("empty")
    code, told = run(capsys, monkeypatch, "store", "pack", place / "b.tar.xz", "--store", empty)
    assert (code, "no finished artifact" in told) == (2, True), told
    assert run(capsys, monkeypatch, "store", "pack", place / "a.tar.xz", "--store", store.root)[0] == 0
    good = (place / "a.tar.xz").read_bytes()
    code, told = run(capsys, monkeypatch, "store", "pack", place / "a.tar.xz", "--store", empty)
    assert (code, "has 5 artifacts that the store lacks" in told) == (2, True), told

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError("rows.parquet")

    monkeypatch.setattr(tarfile.TarFile, "add", gone)
    code, told = run(capsys, monkeypatch, "store", "pack", place / "a.tar.xz", "--store", store.root)
    assert (code, "cannot be written" in told) == (2, True), told
    assert [(path.name, path.read_bytes()) for path in place.iterdir()] == [("a.tar.xz", good)]


def test_damaged_records_are_not_packed_and_no_other_file_is_overwritten(
    store: Store,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path_factory.mktemp("place") / "records.tar.xz"
    (store.path(UNIT) / "rows.parquet").write_text("")
    (store.path(OTHER) / "record.json").write_text("{")
    code, told = run(capsys, monkeypatch, "store", "pack", place, "--store", store.root)
    assert (code, "records of 3 artifacts" in told) == (0, True), told
    place.write_text("a letter")
    code, told = run(capsys, monkeypatch, "store", "pack", place, "--store", store.root)
    assert (code, "not an archive of records" in told) == (2, True), told
    assert place.read_text() == "a letter"


def test_a_pack_that_fails_meanwhile_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[Path]()

    def write(root: Path, file: Path) -> None:
        tries.append(file)
        if len(tries) == 1:
            raise UserError("an artifact went while it was packed")

    monkeypatch.setattr(experiments, "write_records", write)
    monkeypatch.setattr(experiments, "PACKED_EVERY_SECONDS", 0.01)
    with experiments.packed_as_it_goes(tmp_path / "store", tmp_path / "records.tar.xz"):
        end = time.monotonic() + 120
        while len(tries) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(tries) >= 3
