"""Evaluation of one checkpoint on one benchmark: many units, one loaded model, one artifact each."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from tokenweight.errors import StageError
from tokenweight.pipeline import Build, Store
from tokenweight.pipeline.store import Note
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.stages import EvaluateWork, Node
from tokenweight.tasks.locate import model_directory

Held = tuple[AbstractContextManager[Build | None], Build]


def evaluate_units(
    nodes: list[Node], store: Store, execution: Execution, progress: Progress, note: Note
) -> tuple[int, int]:
    """Evaluate those units that the store does not hold; all `nodes` share a checkpoint. Returns (made, reused).

    Where the store has a unit's outputs, scored in another way, they are scored again and no model is asked.
    """
    from tokenweight.evaluation.rescoring import StoredOutputs, rescore_unit
    from tokenweight.evaluation.run import Job, evaluate

    held: dict[str, Held] = {}
    jobs: list[Job] = []
    outputs, made = StoredOutputs(store), 0
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
            made += 1
            prepared = tuple(store.path(node.identity) for node in work.prepared)
            if work.scorer:
                prepared = (*prepared, model_directory(work.scorer, store))
            if scored := outputs.of(node.identity):
                classes = prepared[0] if work.unit.benchmark == "longbench" else None
                rescore_unit(scored, work.unit, work.evaluation, classes, build.directory)
                _publish(held.pop(work.unit.id))
                continue
            jobs.append(Job(unit=work.unit, prepared_dirs=prepared, out_dir=build.directory))
        if jobs:
            work = _work(nodes[0])
            checkpoint_dir = model_directory(work.checkpoint, store)
            for unit in evaluate(checkpoint_dir, jobs, work.evaluation, work.context_tokens, execution, progress):
                _publish(held.pop(unit.id))
    except BaseException as error:
        _abandon(held, error)
        raise
    if held:
        unfinished = StageError(f"evaluation ended without results of {', '.join(sorted(held))}")
        _abandon(held, unfinished)
        raise unfinished
    return made, len(nodes) - made


def _publish(finished: Held) -> None:
    """Put a unit's summary into its record and its directory into the store."""
    holder, build = finished
    build.facts.update(_summary(build))
    holder.__exit__(None, None, None)


def _work(node: Node) -> EvaluateWork:
    if not isinstance(node.work, EvaluateWork):
        raise TypeError(f"{node.identity.address} is not an evaluation")
    return node.work


def _summary(build: Build) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((build.directory / "summary.json").read_text())
    return summary


def _abandon(held: dict[str, Held], error: BaseException) -> None:
    """Give up artifacts in the making: their leases go, what a later run can use stays."""
    for holder, _ in held.values():
        try:
            holder.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error:
                raise
