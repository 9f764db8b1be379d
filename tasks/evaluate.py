"""Evaluation of one checkpoint on one benchmark: many units, one loaded model, one artifact each."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from tokenweight.errors import StageError
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.stages import EvaluateWork, Node
from tokenweight.store import Build, Store
from tokenweight.store.store import Note
from tokenweight.tasks.locate import model_directory


def evaluate_units(
    nodes: list[Node], store: Store, execution: Execution, progress: Progress, note: Note
) -> tuple[int, int]:
    """Evaluate those units that the store does not hold; all `nodes` share a checkpoint. Returns (run, reused)."""
    from tokenweight.evaluation.run import Job, evaluate

    held: dict[str, tuple[AbstractContextManager[Build | None], Build]] = {}
    jobs: list[Job] = []
    try:
        for node in nodes:
            if store.state(node.identity).kind == "whole":
                continue
            holder = store.building(node.identity, note=note)
            build = holder.__enter__()
            if build is None:  # another run finished it while we waited
                holder.__exit__(None, None, None)
                continue
            work = _work(node)
            held[work.unit.id] = (holder, build)
            prepared = store.path(work.prepared.identity) if work.prepared else None
            jobs.append(Job(unit=work.unit, prepared_dir=prepared, out_dir=build.directory))
        count = len(jobs)
        if jobs:
            work = _work(nodes[0])
            checkpoint_dir = model_directory(work.checkpoint, store)
            for unit in evaluate(checkpoint_dir, jobs, work.evaluation, work.context_tokens, execution, progress):
                holder, build = held.pop(unit.id)
                build.facts.update(_summary(build))
                holder.__exit__(None, None, None)
    except BaseException as error:
        for holder, _ in held.values():
            _abandon(holder, error)
        raise
    if held:
        error = StageError(f"evaluation ended without results of {', '.join(sorted(held))}")
        for holder, _ in held.values():
            _abandon(holder, error)
        raise error
    return count, len(nodes) - count


def _work(node: Node) -> EvaluateWork:
    if not isinstance(node.work, EvaluateWork):
        raise TypeError(f"{node.identity.address} is not an evaluation")
    return node.work


def _summary(build: Build) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((build.directory / "summary.json").read_text())
    return summary


def _abandon(holder: AbstractContextManager[Build | None], error: BaseException) -> None:
    """Give up an artifact in the making: its lease goes, what a later run can use stays."""
    try:
        holder.__exit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error:
            raise
