"""A store in which everything is that can be in one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_stores import CHUNKS, MODEL, OTHER, UNIT, cut, make

from tokenweight.errors import StageError
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Chunks, a model made from them and a unit that evaluated it, another model, and a cut and a damaged artifact."""
    store = Store(tmp_path)
    make(store, CHUNKS, MODEL, UNIT, OTHER)
    with pytest.raises(StageError):
        cut(store)
    damaged = Identity("chunk", 1, "torn", {"seed": 2})
    make(store, damaged)
    (store.path(damaged) / "rows.parquet").write_text("")
    make(store, damaged)  # sets the torn one aside
    return store
