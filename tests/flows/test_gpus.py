"""Slots of the limit `gpu`: how many a stage holds, and when none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import Execution
from tokenweight.tasks import gpus

PAPER = default_execution("paper")  # 8 training processes, evaluation on all GPUs


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A server with a limit of 6, on a machine with 4 GPUs; what is taken of it."""
    taken: list[int] = []

    @contextmanager
    def concurrency(name: str, occupy: int, **how: Any) -> Iterator[None]:
        assert (name, how["lease_duration"]) == ("gpu", 60)
        taken.append(occupy)
        yield

    monkeypatch.setattr(gpus, "concurrency", concurrency)
    monkeypatch.setattr(gpus, "has_server", lambda: True)
    monkeypatch.setattr(gpus, "_limit", lambda: 6)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    return taken


def hold(stage: str, execution: Execution) -> list[str]:
    said: list[str] = []
    with gpus.gpus_held(stage, execution, said.append):
        return said


@pytest.mark.parametrize(
    ("stage", "execution", "slots"),
    [
        ("train", PAPER, [6]),  # more than there are would never be free
        ("evaluate", PAPER, [4]),
        ("evaluate", Execution(evaluation_processes=2, device="cuda"), [2]),
        ("score", Execution(), [1]),
        ("chunk", PAPER, []),
        ("train", Execution(device="cpu"), []),
    ],
)
def test_a_stage_holds_as_many_as_it_uses(stage: str, execution: Execution, slots: list[int], held: list[int]) -> None:
    said = hold(stage, execution)
    assert held == slots
    assert said == [f"{stage} takes {number} of 6 GPUs" for number in slots]


def test_without_gpus_limit_or_server_nothing_is_held(held: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for change in ((gpus, "_limit", lambda: None), (gpus, "has_server", lambda: False)):
        with monkeypatch.context() as changed:
            changed.setattr(*change)
            hold("train", PAPER)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    hold("train", PAPER)
    assert held == []
