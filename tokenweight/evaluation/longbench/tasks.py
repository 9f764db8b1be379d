"""The 16 English tasks: category, official prompt, tokens to generate, metric (tasks.yaml); which keep only a first line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenweight.errors import UserError
from tokenweight.evaluation.shipped import table

FirstLine = Literal["lceg", "thudm"]
_FIRST_LINE: dict[FirstLine, tuple[str, ...]] = {  # the categories of which only the prediction's first line is scored
    "thudm": ("few_shot_learning",),
    "lceg": ("few_shot_learning", "single_document_qa", "multi_document_qa", "synthetic_tasks"),
}


@dataclass(frozen=True)
class LongBenchTask:
    """One English task of LongBench with its official constants."""

    name: str
    category: str
    template: str
    max_new_tokens: int
    metric: str

    def takes_first_line(self, rule: FirstLine) -> bool:
        """Whether only the prediction's first line is scored.

        thudm: LongBench's own code (few-shot tasks only). lceg: the code the paper follows, all question answering,
        few-shot and synthetic tasks; for base models the largest single effect on the score.
        """
        return self.category in _FIRST_LINE[rule]


_TABLE = table("longbench/tasks")
TASKS = {
    name: LongBenchTask(name, **values | {"template": _TABLE["templates"][values["template"]]})
    for name, values in _TABLE["tasks"].items()
}


def longbench_task(name: str) -> LongBenchTask:
    """The task of that name. UserError: no such English task."""
    if name not in TASKS:
        raise UserError(f"longbench task {name!r}: unknown; choose one of {', '.join(TASKS)}")
    return TASKS[name]
