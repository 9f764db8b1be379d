"""lm-eval's own task definitions, read without the scan of its whole task library and fed with our local data."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import lm_eval
from datasets import Dataset
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from tokenweight.evaluation.harness import quiet_harness


@lru_cache(maxsize=4)
def _manager(folder: str) -> TaskManager:
    return TaskManager(include_defaults=False, include_path=str(Path(lm_eval.__file__).parent / "tasks" / folder))


def load_tasks(folder: str, overrides: dict[str, dict[str, Any]]) -> dict[str, ConfigurableTask]:
    """lm-eval's tasks by name from one folder of its library, each with the given keys of its YAML replaced."""
    members = [{"task": name, **keys} for name, keys in overrides.items()]
    with quiet_harness():
        tasks: dict[str, ConfigurableTask] = _manager(folder).load([{"group": "units", "task": members}])["tasks"]
    return tasks


class LocalSplits:
    """Documents in memory where lm-eval would load a data set (its `custom_dataset`)."""

    def __init__(self, **splits: list[dict[str, Any]]) -> None:
        self._splits = splits

    def __call__(self, **_: Any) -> dict[str, Dataset]:
        return {name: Dataset.from_list(documents) for name, documents in self._splits.items()}
