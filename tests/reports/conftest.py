"""Stores that the report tests read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves helpers beside the tests unfindable

from reports_fake_store import FakeStore


@pytest.fixture
def store(tmp_path: Path) -> FakeStore:
    return FakeStore(tmp_path / "store")


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> FakeStore:
    """All of Table 3's units, whole; not to be changed."""
    store = FakeStore(tmp_path_factory.mktemp("full") / "store")
    store.fill()
    return store
