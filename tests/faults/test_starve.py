"""Where the system refuses room, files or memory, or changes its clock: one line, nothing false, and the next run makes it."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults_laboratory import Laboratory, answer_under, started

from tokenweight.pipeline.locks import lease
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
    answered = connection.recv() if connection.poll(120) else None
    process.join(30)
    assert answered is not None, f"{what}: silence"
    told, message = answered
    assert told == "failed", message
    assert message
    assert copy.store.state(artifact.identity).kind == "missing"
    process = started(copy)
    process.join(300)
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
