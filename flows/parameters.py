"""From a flow's flat parameters to the library's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.recipes import Inputs
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import Execution, Scale
from tokenweight.store import Store


def store_at(path: str) -> Store:
    """The store at a path, which need not exist yet."""
    return Store(Path(path).expanduser().resolve())


def execution_for(scale: Scale, **given: Any) -> Execution:
    """The scale's execution with what the user gave in place."""
    return default_execution(scale).model_copy(update={key: value for key, value in given.items() if value is not None})


def inputs_from(settings: list[str] | None, **paths: str | None) -> Inputs:
    """A user's inputs from flat parameters; empty text means not given (the UI sends it)."""
    return Inputs(settings=tuple(settings or ()), **{key: value or None for key, value in paths.items()})
