"""lm-eval's own task definitions, read without the scan of its whole task library and fed with our local data."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import lm_eval
from datasets import Dataset
from datasets.table import InMemoryTable
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from tokenweight.errors import UserError
from tokenweight.evaluation.quiet import quiet_harness


@lru_cache(maxsize=4)
def _manager(folder: str) -> TaskManager:
    return TaskManager(include_defaults=False, include_path=str(Path(lm_eval.__file__).parent / "tasks" / folder))


def load_tasks(folder: str, overrides: dict[str, dict[str, Any]]) -> dict[str, ConfigurableTask]:
    """lm-eval's tasks by name from one folder of its library, each with the given keys of its YAML replaced.

    Raises:
        UserError: a task's data set of the hub cannot be loaded.
    """
    members = [{"task": name, **keys} for name, keys in overrides.items()]
    try:
        with quiet_harness():
            tasks: dict[str, ConfigurableTask] = _manager(folder).load([{"group": "units", "task": members}])["tasks"]
    except OSError as error:  # local data are in memory by now: this is the hub
        repositories = sorted({str(keys.get("dataset_path")) for keys in overrides.values()})
        raise UserError(
            f"evaluation.{folder.split('/')[0]}.data: {', '.join(repositories)} cannot be loaded "
            f"({type(error).__name__}); go online once, or give a local directory"
        ) from error
    return tasks


def pinned(hub: dict[str, str]) -> dict[str, Any]:
    """Keys of a task's YAML that fix the data set of the hub and its revision."""
    return {"dataset_path": hub["repo_id"], "dataset_kwargs": {"revision": hub["revision"]}}


class LocalSplits:
    """Documents in memory where lm-eval would load a data set (its `custom_dataset`).

    The fingerprint is given, since nothing is cached: to make one, `datasets` pickles the table, which fails beside some
    installations (Python 3.12 with jax).
    """

    def __init__(self, **splits: list[dict[str, Any]]) -> None:
        self._splits = splits

    def __call__(self, **_: Any) -> dict[str, Dataset]:
        return {
            name: Dataset(InMemoryTable.from_pylist(documents), fingerprint=name)
            for name, documents in self._splits.items()
        }
