"""The Prefect tasks: one per stage. The store decides about reuse; Prefect carries only addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed
from prefect.utilities.annotations import quote

from tokenweight.recipes.schema import Execution
from tokenweight.stages import Node, StageName
from tokenweight.store import Store
from tokenweight.tasks.evaluate import evaluate_units
from tokenweight.tasks.progress import reporter
from tokenweight.tasks.work import maker


@dataclass(frozen=True)
class Context:
    """What every task needs beside its nodes."""

    store: Store
    execution: Execution


def _made(reused: int, total: int, addresses: list[str]) -> State:
    """The state that a task returns: Reused where nothing was made."""
    name = "Reused" if reused == total else "Completed"
    message = f"{total - reused} made, {reused} reused"
    return Completed(name=name, message=message, data=addresses[0] if total == 1 else f"{total} artifacts")


def _make_each(label: str, nodes: quote[list[Node]], context: quote[Context]) -> State:
    """Make one artifact after the other, each under its own lease."""
    given = context.unquote()
    logger = get_run_logger()
    progress = reporter(label)
    reused = Counter[bool]()
    members = nodes.unquote()
    for done, node in enumerate(members):
        make = maker(node, given.store, given.execution, progress)
        _, was_there = given.store.get_or_build(node.identity, make, note=logger.info)
        reused[was_there] += 1
        if len(members) > 1:
            progress(done + 1, len(members), "artifacts")
    return _made(reused[True], len(members), [node.identity.address for node in members])


def _evaluate(label: str, nodes: quote[list[Node]], context: quote[Context]) -> State:
    """Evaluate the units of one checkpoint and benchmark that are not in the store."""
    given = context.unquote()
    members = nodes.unquote()
    _, reused = evaluate_units(members, given.store, given.execution, reporter(label), get_run_logger().info)
    return _made(reused, len(members), [node.identity.address for node in members])


def _task(stage: StageName, function: Callable[..., State]) -> Callable[..., State]:
    return task(
        function,
        name=stage,
        description=function.__doc__,
        task_run_name="{label}",
        cache_policy=NO_CACHE,
        persist_result=False,
        tags=[stage],
    )


chunk = _task("chunk", _make_each)
prepare = _task("prepare", _make_each)
pretrain = _task("pretrain", _make_each)
score = _task("score", _make_each)
extend = _task("extend", _make_each)
train = _task("train", _make_each)
evaluate = _task("evaluate", _evaluate)

BY_STAGE: dict[StageName, Callable[..., State]] = {
    "chunk": chunk,
    "prepare": prepare,
    "pretrain": pretrain,
    "score": score,
    "extend": extend,
    "train": train,
    "evaluate": evaluate,
}
