"""Runs on one machine take different GPUs, wait for free ones, and free them however they end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution
from tokenweight.tasks import gpus

ONE = Execution(device="cuda")
ALL = Execution(device="cuda", gpus="all")


@pytest.fixture(autouse=True)
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.LOCKS, str(tmp_path / "locks"))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(gpus, "_count", lambda: 2)


SCRIPT = """
import json, sys, time
from tokenweight.tasks import gpus
from tokenweight.recipes.schema import Execution
gpus._count = lambda: int(sys.argv[1])
def say(**message): print(json.dumps(message), flush=True)
with gpus.held_gpus(Execution(**json.loads(sys.argv[2])), {"train"}, lambda text: say(note=text)) as chosen:
    say(chosen=chosen)
    sys.stdin.read()
"""


class Run:
    """A run in a process of its own that holds GPUs until its input is closed."""

    def __init__(self, count: int = 2, **execution: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(count), json.dumps({"device": "cuda", **execution})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={name: value for name, value in os.environ.items() if name != gpus.VISIBLE},
        )  # fmt: skip

    def says(self) -> dict[str, object]:
        """Its next line."""
        stream: IO[str] | None = self.process.stdout
        assert stream is not None
        message: dict[str, object] = json.loads(stream.readline())
        return message

    def end(self, how: int | None = None) -> None:
        if how is not None:
            self.process.send_signal(how)
        self.process.communicate()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.end(signal.SIGKILL)


def test_two_runs_take_different_gpus_and_a_third_waits_until_one_is_killed(runs: list[Run]) -> None:
    runs += [Run(), Run()]
    taken = [run.says() for run in runs]
    assert sorted(told["chosen"] for told in taken) == [["0"], ["1"]]
    third = Run()
    runs.append(third)
    note = str(third.says()["note"])
    assert note.startswith("waiting for 1 of 2 GPUs: 0 free, the others held by process ")
    assert all(str(run.process.pid) in note for run in runs[:2])
    runs[0].end(signal.SIGKILL)
    assert third.says()["chosen"] == taken[0]["chosen"]


def test_runs_that_want_several_hold_none_while_they_wait(runs: list[Run]) -> None:
    one = Run()
    runs.append(one)
    assert one.says()["chosen"] == ["0"]
    both = Run(launcher="torchrun", processes=2)
    runs.append(both)
    assert "1 free" in str(both.says()["note"])
    with gpus.held_gpus(ONE, {"train"}, pytest.fail) as chosen:
        assert chosen == ["1"]
    one.end()
    assert both.says()["chosen"] == ["0", "1"]


def test_who_looks_for_several_takes_none_from_another_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    free, looking = gpus._free, threading.Event()

    def slowly(locks: dict[str, Any]) -> None:
        if threading.current_thread() is not threading.main_thread():
            looking.set()
            time.sleep(0.5)
        free(locks)

    monkeypatch.setattr(gpus, "_free", slowly)
    with ThreadPoolExecutor(1) as other, gpus.held_gpus(ONE, {"train"}, pytest.fail):
        other.submit(gpus._take, ["0", "1"], 2, 2, lambda _: None, time.monotonic())
        assert looking.wait(60)
        with gpus.held_gpus(ONE, {"train"}, pytest.fail) as chosen:
            assert chosen == ["1"]


def test_only_what_is_visible_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.VISIBLE, "5,GPU-8f3a,7")  # torch sees two
    with gpus.held_gpus(ONE, {"score"}, pytest.fail) as chosen:
        assert chosen == ["5"]
    with gpus.held_gpus(ALL, {"evaluate"}, pytest.fail) as chosen:
        assert chosen == ["5", "GPU-8f3a"]


def test_evaluation_takes_all_that_are_free(runs: list[Run]) -> None:
    runs.append(Run())
    assert runs[0].says()["chosen"] == ["0"]
    with gpus.held_gpus(ALL, {"evaluate"}, pytest.fail) as chosen:
        assert chosen == ["1"]


def test_each_slurm_job_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch, runs: list[Run]) -> None:
    """With confined devices every job's GPUs are counted from 0."""
    monkeypatch.setenv("SLURM_JOB_ID", "11")
    runs.append(Run(1))
    assert runs[0].says()["chosen"] == ["0"]
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setattr(gpus, "_count", lambda: 1)
    with gpus.held_gpus(ONE, {"train"}, pytest.fail) as chosen:
        assert chosen == ["0"]


def test_without_need_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for execution, stages in ((ONE, {"chunk", "prepare"}), (Execution(device="cpu"), {"train"})):
        with gpus.held_gpus(execution, stages, pytest.fail) as chosen:
            assert chosen == []
    monkeypatch.setattr(gpus, "_count", lambda: 0)
    with gpus.held_gpus(Execution(), {"train"}, pytest.fail) as chosen:
        assert chosen == []


def test_more_than_there_are_is_a_mistake_and_the_wait_has_an_end(runs: list[Run]) -> None:
    three = Execution(device="cuda", gpus=3)
    with pytest.raises(UserError, match="gpus 3: torch sees 2 here"), gpus.held_gpus(three, {"train"}, pytest.fail):
        pass
    two = Execution(device="cuda", gpus=2)
    with gpus.held_gpus(two, {"evaluate"}, pytest.fail) as chosen:
        assert chosen == ["0", "1"]
    runs.append(Run())
    assert runs[0].says()["chosen"] == ["0"]
    with gpus.held_gpus(two, {"train"}, lambda _: None, time.monotonic()) as chosen:
        assert chosen is None
