"""Data of benchmarks: what a task is, what is shipped, their tables of tasks and prompts, and JSON Lines that others wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.corpus.files import json_lines
from tokenweight.errors import UserError, hub_reason
from tokenweight.recipes.recipe import read_yaml


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of a benchmark. Raise the version whenever its prompts change: older samples are not reused."""

    metric: str
    new_tokens: int = 0  # that it generates at most; 0: none
    template_version: int = 1
    greatest_mean: float | None = None  # above it a broken protocol is likelier than a good model


_HALVES = re.compile("[\ud800-\udfff]")


def smoke_eval_dir() -> Path:
    """Directory with ruler/, longbench/, mmlu/ and bbh/, each in its benchmark's official layout."""
    return Path(__file__).parents[1] / "assets" / "smoke-eval"


@contextmanager
def readable_hub(benchmark: str, repo_id: str) -> Iterator[None]:
    """What goes wrong when a data set of the hub is loaded, as a UserError."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise UserError(
            f"evaluation.{benchmark}.data: {repo_id} cannot be loaded ({hub_reason(error)}); "
            "go online once, or give a local directory"
        ) from error


@cache
def table(name: str) -> Any:
    """The content of one of this room's YAML files, e.g. `ruler/tasks`."""
    return read_yaml((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))


def is_text(value: object) -> bool:
    """Whether it is a text that a tokenizer can read: JSON may have half of a character in it."""
    return isinstance(value, str) and not _HALVES.search(value)


def fault(error: Exception) -> str:
    """What an error of reading says about the data."""
    return f"field {error} is missing" if isinstance(error, KeyError) else str(error)


def json_objects(path: Path, *fields: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line that is not blank. UserError: unreadable, no JSON object, or lacks a field."""
    for number, row in json_lines(path):
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: is not a JSON object; expected one with {', '.join(fields)}")
        if missing := [name for name in fields if name not in row]:
            raise UserError(f"{path}, line {number}: has no field {missing[0]!r}; expected {', '.join(fields)}")
        yield number, row
