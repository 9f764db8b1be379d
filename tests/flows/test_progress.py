"""What a long stage says, how often, and that nobody's listening ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tokenweight.tasks import task_runs
from tokenweight.tasks.task_runs import progress_of


class Watch:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Artifacts:
    """What would be on a server: (percent, description) of each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: bool = True) -> None:
        self.calls: list[tuple[float, str]] = []
        self.answer: Callable[[], Any] = uuid4
        monkeypatch.setattr(task_runs, "has_server", lambda: server)
        monkeypatch.setattr(task_runs, "create_progress_artifact", self.create)
        monkeypatch.setattr(task_runs, "update_progress_artifact", self.update)

    def create(self, percent: float, description: str) -> Any:
        self.calls.append((percent, description))
        return self.answer()

    def update(self, artifact: Any, percent: float, description: str) -> None:
        self.calls.append((percent, description))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    logger = SimpleNamespace(info=lambda form, *values: said.append(form % values))
    monkeypatch.setattr(task_runs, "get_run_logger", lambda: logger)
    return said


def test_a_line_every_ten_seconds_with_the_time_left(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch = Artifacts(monkeypatch), Watch()
    with progress_of("chunk novel", watch) as report:
        report(1000, 9000, "documents")  # a stage that goes on where it was cut
        for done in (2000, 3000, 4000):
            watch.now += 4
            report(done, 9000, "documents")
    assert lines == ["4000 of 9000 documents, about 20 s left"]
    assert artifacts.calls[0] == (pytest.approx(400 / 9), "chunk novel: 4000 of 9000 documents, about 20 s left")
    assert artifacts.calls[-1] == (100.0, "chunk novel: done")


def test_a_stages_own_estimate_is_kept(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Artifacts(monkeypatch)
    watch = Watch()
    with progress_of("train", watch) as report:
        report(1, 4, "steps: NLL 2.0, about 90 s left")
        watch.now += 60
        report(2, 4, "steps: NLL 1.9, about 55 s left")
    assert lines == ["2 of 4 steps: NLL 1.9, about 55 s left"]


def test_short_stages_say_nothing(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch = Artifacts(monkeypatch), Watch()
    with progress_of("prepare", watch) as report:
        watch.now += 9
        report(1, 2, "artifacts")
    assert (lines, artifacts.calls) == ([], [])


def test_without_a_server_there_is_the_line_alone(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch = Artifacts(monkeypatch, server=False), Watch()
    with progress_of("train", watch) as report:
        watch.now += 11
        report(1, 2, "steps")
    assert (len(lines), artifacts.calls) == (1, [])


def test_a_server_that_fails_ends_no_stage(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch = Artifacts(monkeypatch), Watch()

    def refused() -> None:
        raise ConnectionError

    artifacts.answer = refused
    with progress_of("train", watch) as report:
        for step in range(1, 4):
            watch.now += 11
            report(step, 4, "steps")
    assert len(lines) == 3


def test_a_server_that_hangs_stops_no_stage(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch, answered = Artifacts(monkeypatch), Watch(), threading.Event()
    artifacts.answer = lambda: answered.wait(120) and uuid4()
    with progress_of("train", watch) as report:
        for step in range(1, 4):
            watch.now += 11
            report(step, 4, "steps")
        assert len(artifacts.calls) == 1  # those in between are dropped
        answered.set()
    assert artifacts.calls[-1] == (100.0, "train: done")


def test_what_failed_is_not_shown_as_done(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts, watch = Artifacts(monkeypatch), Watch()

    def fail() -> None:
        with progress_of("train", watch) as report:
            watch.now += 11
            report(1, 4, "steps")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert all(percent < 100 for percent, _ in artifacts.calls)
