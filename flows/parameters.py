"""From a flow's flat parameters to the library's objects."""

from __future__ import annotations

from pathlib import Path

from tokenweight.recipes import Inputs
from tokenweight.store import Store


def store_at(path: str) -> Store:
    """The store at a path, which need not exist yet."""
    return Store(Path(path).expanduser().resolve())


def inputs_from(settings: list[str] | None, **paths: str | None) -> Inputs:
    """A user's inputs from flat parameters; empty text means not given (the UI sends it)."""
    return Inputs(settings=tuple(settings or ()), **{key: value or None for key, value in paths.items()})
