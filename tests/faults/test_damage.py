"""Every file of every kind of artifact deleted, truncated, flipped or swapped, and records of another schema.

Damage is named, made again with exactly what it is needed for, and never served as a number.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults_laboratory import EXECUTION, Laboratory

from tokenweight.errors import StageError, UserError
from tokenweight.pipeline.inventory import inventory
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import RECORD, Store, existing_store
from tokenweight.reports.figures.training import read_steps
from tokenweight.reports.samples import read_unit
from tokenweight.tasks.pieces import make_piece

STAGES = ("prepare", "chunk", "score", "extend", "train", "evaluate")
Tally = Callable[[str, str, str], None]


def other_schemas(record: dict[str, object]) -> Iterator[bytes]:
    """Records that are JSON, or nearly, and not ours."""
    outputs = dict(record["outputs"])  # type: ignore[call-overload]
    for changed in (
        {"outputs": list(outputs)},
        {"outputs": dict.fromkeys(outputs, "sha256")},
        {"outputs": {name: {"sha256": "0" * 64} for name in outputs}},
        {"outputs": None},
        {"inputs": []},
        {"config": "none"},
        {"fingerprint": 7},
        {"facts": {"parameters": 7}},
    ):
        yield json.dumps(record | changed).encode()
    yield from (b"[]", b"7", b"null", b"{}", b"\xff{", b"[" * 100_000, b'{"outputs": ' + b"9" * 6000 + b"}")


def faults(laboratory: Laboratory, artifact: Artifact, file: Path) -> Iterator[tuple[str, bytes | None]]:
    """Kinds of fault and what the file then holds; None: it is gone."""
    data = file.read_bytes()
    yield "deleted", None
    yield "truncated", data[: len(data) // 2]
    yield "one byte flipped", flipped(data, len(data) // 2)
    like = (
        other
        for one in laboratory.artifacts
        if one is not artifact
        for other in laboratory.path(one).rglob(file.name)
        if other.read_bytes() != data
    )
    if other := next(like, None):
        yield "swapped", other.read_bytes()
    if file.name == RECORD:
        changed = (flipped(data, place) for place in range(0, len(data), len(data) // 40))
        yield from (("one byte flipped", content) for content in changed if not says_the_same(content, data))
        yield from (("record of other schema", content) for content in other_schemas(json.loads(data)))


def says_the_same(content: bytes, record: bytes) -> bool:
    """Whether all that is recorded is as it was: its digest alone went by another name, as in records that have none."""
    try:
        found, known = json.loads(content), json.loads(record)
    except ValueError:
        return False
    return all(found.get(name) == value for name, value in known.items() if name != "sha256") and "sha256" not in found


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@contextmanager
def damaged(file: Path, content: bytes | None, aside: Path) -> Iterator[None]:
    """Never written in place: a file may be a link to one of the package's own."""
    folder = file
    while not (folder.parent / RECORD).exists():
        folder = folder.parent
    artifact = folder.parent
    file.rename(aside / "file")
    if content is not None:
        file.write_bytes(content)
    yield
    for left in artifact.parent.glob(f"{artifact.name}.damaged-*"):
        left.rename(artifact)
    (aside / "file").replace(file)


@contextmanager
def hidden(laboratory: Laboratory, artifacts: set[Artifact], aside: Path) -> Iterator[None]:
    for number, one in enumerate(artifacts):
        laboratory.path(one).rename(aside / str(number))
    yield
    for number, one in enumerate(artifacts):
        shutil.rmtree(laboratory.store.partial(one.identity), ignore_errors=True)
        (aside / str(number)).rename(laboratory.path(one))


def outcome(laboratory: Laboratory, artifact: Artifact, file: Path, aside: Path) -> str:
    """What becomes of an artifact that has a fault now."""
    store, name = laboratory.store, str(file.relative_to(laboratory.path(artifact)))
    seen, deep = store.state(artifact.identity), store.state(artifact.identity, digests=True)
    if deep.kind != "damaged" or not (name in deep.reason or "record" in deep.reason):
        return "false numbers"
    (entry,) = (one for one in inventory(store.root, digests=True) if one.path == laboratory.path(artifact))
    assert entry.kind == "damaged", entry
    for row in laboratory.planned.manifest.rows:
        for unit in row.units:
            if unit.address == artifact.address and read_unit(unit, store.root).status == "complete":
                return "false numbers"
        steps = row.train and row.train.address == artifact.address and read_steps(row.train, store.root)
        if (
            name in ("metrics.jsonl", RECORD)
            and steps is not None
            and steps is not False
            and not isinstance(steps, str)
        ):
            return "false numbers"
    below = laboratory.below(artifact)
    child = next((one for one in laboratory.artifacts if artifact in one.parents), None)
    needed = {artifact} if child is None else {artifact, child, *laboratory.below(child)}
    with hidden(laboratory, needed - {artifact}, aside):
        assert needed <= {artifact, *below}
        if seen.kind == "complete":
            assert child is not None, "an evaluation's contents are read when planned"
            with pytest.raises(StageError, match=r"damaged .*run again") as raised:
                make_piece([child], store, EXECUTION)
            assert artifact.address in str(raised.value)
            assert name in str(raised.value)
        return "named" if laboratory.runs() == needed else "losses"


def check(laboratory: Laboratory, stage: str, every: bool, aside: Path, tally: Tally) -> None:
    chosen = [one for one in laboratory.artifacts if one.stage.name == stage]
    for artifact in chosen if every else chosen[:1]:
        files = sorted(file for file in laboratory.path(artifact).rglob("*") if file.is_file())
        largest = max(files, key=lambda file: file.stat().st_size)
        for file in files if every else {largest, laboratory.path(artifact) / RECORD}:
            for kind, content in faults(laboratory, artifact, file):
                with damaged(file, content, aside):
                    tally(kind, stage, outcome(laboratory, artifact, file, aside))
    assert laboratory.runs() == set(), "all is as it was"


def test_damage_is_named_and_never_served(laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    for stage in STAGES:
        check(laboratory, stage, every=False, aside=tmp_path, tally=tally)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_every_file_is_watched(stage: str, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    check(laboratory, stage, every=True, aside=tmp_path, tally=tally)


def made_again(laboratory: Laboratory, stage: str, copy: Path, tally: Tally) -> None:
    """On a copy of the store one file is flipped and all that was made from it is gone: runs end with the same table."""
    shutil.copytree(laboratory.store.root, copy / "store")
    other = Laboratory(Store(copy / "store"), laboratory.planned)
    artifact = next(one for one in laboratory.artifacts if one.stage.name == stage)
    largest = max((f for f in other.path(artifact).rglob("*") if f.is_file()), key=lambda file: file.stat().st_size)
    content = flipped(largest.read_bytes(), largest.stat().st_size // 2)
    largest.unlink()
    largest.write_bytes(content)
    below = laboratory.below(artifact)
    for one in below:
        shutil.rmtree(other.path(one))
    before = {one: os.stat(laboratory.path(one) / RECORD).st_mtime_ns for one in laboratory.artifacts}
    if below:
        with pytest.raises(StageError, match=r"damaged .*run again"):
            other.make()
    other.make()
    assert {one for one in before if os.stat(other.path(one) / RECORD).st_mtime_ns != before[one]} == {artifact, *below}
    same = other.table(copy / "again") == laboratory.table(copy / "before")
    tally("one byte flipped, run twice", stage, "made again" if same else "false numbers")


def test_a_damaged_training_is_made_again(laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    made_again(laboratory, "train", tmp_path, tally)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "train"])
def test_whatever_is_damaged_is_made_again(stage: str, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    made_again(laboratory, stage, tmp_path, tally)


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_of_another_version_is_refused(version: int, tmp_path: Path, tally: Tally) -> None:
    (tmp_path / "chunk" / "novel-12345678").mkdir(parents=True)
    (tmp_path / "chunk" / "novel-12345678" / RECORD).write_text(json.dumps({"record_version": version, "outputs": {}}))
    with pytest.raises(UserError, match="was made by"):
        existing_store(tmp_path)
    tally("record of other version", "store", "refused")
