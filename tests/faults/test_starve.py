"""Where the system refuses room, files or memory, or changes its clock: one line, nothing false, and the next run makes it."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults_laboratory import Laboratory, answer_under, started

from tokenweight.errors import UserError
from tokenweight.files import LEAST_ADDRESS_SPACE, LEAST_OPEN_FILES, check_limits
from tokenweight.pipeline.locks import lease
from tokenweight.pipeline.stage import Artifact, HubModel
from tokenweight.pipeline.store import Store
from tokenweight.recipes.schema import Execution
from tokenweight.tasks import worker
from tokenweight.tasks.worker import start

Tally = Callable[[str, str, str], None]
# The kind of limit, and how much more than it has the process gets.
STARVED = {
    "room on the disk": (resource.RLIMIT_FSIZE, 100),
    "file handles": (resource.RLIMIT_NOFILE, -2),
    "memory": (resource.RLIMIT_AS, 1_000_000),
}
STAGES = ("chunk", "score", "train", "evaluate")


def starved(laboratory: Laboratory, root: Path, what: str, stage: str, tally: Tally) -> None:
    artifact = next(one for one in laboratory.artifacts if one.stage.name == stage)
    shutil.copytree(laboratory.store.root, root / "store")
    copy = laboratory.at(root / "store")
    for one in {artifact, *laboratory.below(artifact)}:
        shutil.rmtree(copy.path(one))
    process, connection = start(answer_under, copy, [artifact], *STARVED[what])
    answered = connection.recv() if connection.poll(600) else None
    process.join(120)
    assert answered is not None, f"{what}: silence"
    told, message = answered
    assert told == "failed", message
    assert message
    assert copy.store.state(artifact.identity).kind == "missing"
    process = started(copy)
    process.join(600)
    tally(f"no {what}", stage, "named" if copy.contents() == laboratory.contents() else "false numbers")


@pytest.mark.parametrize("what", STARVED)
def test_what_the_system_refuses_is_one_line(what: str, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    starved(laboratory, tmp_path, what, "evaluate", tally)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES[:-1])
@pytest.mark.parametrize("what", STARVED)
def test_in_any_stage(what: str, stage: str, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    starved(laboratory, tmp_path, what, stage, tally)


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_a_clock_that_jumps_takes_no_lease_away(
    jump: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    now = time.time
    with lease(tmp_path, "train", "0" * 64) as held:
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        with lease(tmp_path, "train", "0" * 64) as other:
            assert other is None
    assert held is not None
    assert held.compromise is None
    tally("a clock that jumps", "leases", "accepted")


@pytest.mark.parametrize(("soft", "hard"), [(64, 64), (64, 4096), (2048, 4096)])
def test_a_run_has_room_for_its_files_or_does_not_begin(
    soft: int, hard: int, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """With 12 its server and workers waited for each other for ever."""
    given: list[tuple[int, int]] = []
    limits = {resource.RLIMIT_NOFILE: (soft, hard), resource.RLIMIT_AS: (LEAST_ADDRESS_SPACE,) * 2}
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    if hard < LEAST_OPEN_FILES:
        with pytest.raises(UserError, match=rf"ulimit -n: {hard} open files are too few .* {LEAST_OPEN_FILES} or more"):
            check_limits()
    else:
        check_limits()
    assert given == ([(LEAST_OPEN_FILES, hard)] if soft < LEAST_OPEN_FILES <= hard else [])
    tally("no file handles", "a run", "refused" if hard < LEAST_OPEN_FILES else "accepted")


def test_a_run_has_room_in_memory_or_does_not_begin(tmp_path: Path, tally: Tally) -> None:
    """With 1.5 GB it ended after 24 seconds, in a traceback of whichever library was refused first."""
    limited = ["bash", "-c", 'ulimit -v 1500000; exec "$@"', "bash", sys.executable, "-m", "tokenweight.cli"]
    ended = subprocess.run(
        [*limited, "reproduce", "table-3/uniform@perplexity", "--scale", "smoke", "--store", "store"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "ulimit -v: 1500000 KiB of memory are too few for a run" in ended.stderr
    assert not [*tmp_path.rglob("record.json")]
    tally("no memory", "a run", "refused")


@pytest.mark.parametrize(
    ("error", "free", "told"),
    [
        (OSError(28, "No space left on device"), 2**30, "no space is left on the disk"),
        (RuntimeError("unexpected pos 4992 vs 4884"), 4096, "no space is left on the disk"),  # torch's, of a full disk
        (OSError(24, "Too many open files"), 2**30, "raise `ulimit -n`"),
        (MemoryError("malloc of size 64 failed"), 2**30, "memory is short"),  # of which pyarrow's is one
        (OSError(12, "Cannot allocate memory"), 2**30, "memory is short"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2**30, "memory is short"),
        (RuntimeError("of its own"), 2**30, "RuntimeError: of its own"),
    ],
)
def test_what_is_short_is_said_in_words(
    error: Exception, free: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (2**40, 2**40 - free, free))
    monkeypatch.setattr(worker, "make_piece", lambda *_: (_ for _ in ()).throw(error))
    artifact = Artifact(HubModel(repo_id="a/b", revision="0" * 40))
    kind, said = worker._Worker(None, Store(tmp_path), Execution()).answer([artifact])  # type: ignore[arg-type]
    assert (kind, told in str(said)) == ("failed", True), said
    tally("no room on the disk", "a worker's answer", "named")
