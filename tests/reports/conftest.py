"""Stores that the report tests read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves helpers beside the tests unfindable

from reports_fake_store import RULER_TASKS, FakeStore, all_units

from tokenweight.reports.build import build_report
from tokenweight.reports.model import Report
from tokenweight.reports.targets import TARGETS, get_target


@pytest.fixture
def store(tmp_path: Path) -> FakeStore:
    return FakeStore(tmp_path / "store")


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> FakeStore:
    """All of Table 3's units, whole; not to be changed."""
    store = FakeStore(tmp_path_factory.mktemp("full") / "store")
    store.fill()
    return store


@pytest.fixture(scope="session")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Table 3 with a missing unit, a partial one, a stale one and a flag, besides whole cells."""
    store = FakeStore(tmp_path_factory.mktemp("eventful") / "store")

    def unit_scores(row: str, benchmark: str) -> list[float]:
        return [1.0, 0.0, 0.5, 1.0 if row == "frozen-sparse" else 0.25]

    for row in ("no-train-8k", "no-train-32k", "uniform", "frozen-sparse"):
        for benchmark, task, length in all_units(short_context=row == "no-train-8k"):
            unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
            scores: list[float] | None = unit_scores(row, benchmark)
            if (row, unit) == ("uniform", f"ruler/{RULER_TASKS[2]}/2048"):
                scores = None
            if (row, unit) == ("frozen-sparse", f"ruler/{RULER_TASKS[5]}/3072"):
                scores = [1.0]
            stale = {"fingerprint": "0" * 64} if (row, unit) == ("no-train-32k", "longbench/lcc") else None
            flags = ["all outputs empty"] if (row, unit) == ("uniform", "mmlu/anatomy") else None
            tokens = [900, 1024, 1025, 5000] if benchmark == "longbench" else None
            store.add(row, unit, scores, n_expected=4, tokens=tokens, record=stale, flags=flags)
    return build_report(store.manifest(divergences=("This run has four rows only.",)), store.root)


@pytest.fixture(scope="session")
def every_target(full_store: FakeStore) -> list[Report]:
    """All targets, from the units that Table 3's rows have."""
    names = [name for name in TARGETS if get_target(name).paper_place]
    return [build_report(full_store.shown_in(name), full_store.root) for name in names]
