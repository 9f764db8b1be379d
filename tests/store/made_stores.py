"""Artifacts of a few bytes for the tests of stores, and the command `tokenweight store` in the test's process."""

import sys
from typing import Any

import pytest

from tokenweight import cli
from tokenweight.errors import StageError
from tokenweight.pipeline.inventory import Entry, inventory
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Build, Store

CHUNKS = Identity("chunk", 1, "novel", {"seed": 1})
MODEL = Identity("train", 1, "uniform", {"steps": 3}, {"chunks": CHUNKS.fingerprint})
UNIT = Identity("evaluate", 1, "uniform--mmlu", {"unit": "mmlu/anatomy"}, {"checkpoint": MODEL.fingerprint})
OTHER = Identity("train", 1, "sparse", {"steps": 3, "kappa": 0.2}, {"chunks": CHUNKS.fingerprint})


def write(work: Build) -> None:
    names = ["rows.parquet"]
    if work.identity.stage == "train":
        (work.directory / "model").mkdir(exist_ok=True)
        names += ["model/config.json", "model/model.safetensors"]
    for name in names:
        (work.directory / name).write_text(f"{work.identity.address} {name}")


def cut(store: Store) -> None:
    with store.building(Identity("train", 1, "cut", {"steps": 4})) as work:
        assert work is not None
        write(work)
        raise StageError("power cut")


def make(store: Store, *identities: Identity) -> None:
    for identity in identities:
        with store.building(identity) as work:
            if work is not None:
                write(work)


def kinds(store: Store, **options: Any) -> dict[str, str]:
    return {entry.path.name: entry.kind for entry in inventory(store.root, **options) if entry.kind != "complete"}


def one(store: Store, identity: Identity) -> Entry:
    return next(entry for entry in inventory(store.root) if entry.path == store.path(identity))


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["tokenweight", *map(str, arguments)])
    code = 0
    try:
        cli.main()
    except SystemExit as error:
        code = int(error.code or 0)
    told = capsys.readouterr()
    return code, told.out + told.err
