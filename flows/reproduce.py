"""The flow `reproduce`: plan experiments, run what is missing, write their tables. Deployments are parameters of it.

Each piece is a task run, submitted when its parents are finished and a slot is free.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from prefect import flow, runtime
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger

from tokenweight.errors import StageError, UserError
from tokenweight.flat import flat
from tokenweight.flows.pool import cancel_runs, own_parameters, run_in_pool
from tokenweight.pipeline.locks import shared_lock
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.stage import Graph
from tokenweight.pipeline.store import Store, open_store
from tokenweight.planning.plan import check_before_running, graph_of, schedule
from tokenweight.processes import end_with_parent
from tokenweight.progress import counted
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import Choices, RunOptions, Seeds
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import packed_as_it_goes, plan_texts, tables_as_they_come, write_tables
from tokenweight.tasks.gpus import held_gpus
from tokenweight.tasks.pieces import Piece, pieces_of
from tokenweight.tasks.slots import Slots
from tokenweight.tasks.task_runs import make, publish

_LISTED = 8  # skipped pieces that are named


def _run_name() -> str:
    """`table-3 smoke`; of an experiment's text its name; of one model of it, that too."""
    given = runtime.flow_run.parameters
    experiment = str(given["experiment"])
    if "\n" in experiment:
        named = re.search(r'^\s*"?name"?:\s*"?([a-z0-9-]+)', experiment, re.MULTILINE)
        experiment = named.group(1) if named else "experiment"
    return f"{experiment} {given['scale']}" + (f": {given['run']}" if given["run"] else "")


@flow(name="reproduce", flow_run_name=_run_name, persist_result=False, on_cancellation=[cancel_runs])
@flat
def reproduce(
    experiment: str,
    *,
    scale: str = "smoke",
    seeds: Seeds | None = None,
    run: str | None = None,
    inputs: Inputs,
    options: RunOptions,
    choices: Choices,
    execution: tuple[str, ...] = (),
) -> dict[str, dict[str, str]]:
    """Reproduce experiments: chunk, score, extend, train, evaluate, write tables; finished stages are reused.

    A model that fails does not stop the others; the run ends as failed after the tables are written. Returns the paths
    of what is written, by experiment and kind.
    """
    place = open_store(options.store)
    try:
        texts = [experiment] if "\n" in experiment else shlex.split(experiment)
    except ValueError:
        raise UserError(f"experiment: {experiment} has an open quote; close it") from None
    if not texts:
        raise UserError("experiment: is empty; give a target such as table-3, a file, or an experiment's text")
    wanted, left_out = plan_texts(texts, scale, inputs, place, seeds)
    for line in left_out:
        get_run_logger().warning(line)
    # With a pool this machine trains nothing, so that its GPUs do not count.
    how = execution_for(wanted[0].like, execution, here=not options.pool, **choices)
    graphs = [graph_of(wanted[0].graph, run, place)] if run else [planned.graph for planned in wanted]
    for line in check_before_running(graphs, place, how):
        get_run_logger().warning(line)
    if run:
        run_graph(graphs, place, how).raise_failures()
        return {}
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
    return paths_of(run_experiments(wanted, place, how, options, {"experiment": experiment, **given}))


def run_experiments(
    wanted: Sequence[ResolvedExperiment],
    store: Store,
    execution: Execution,
    options: RunOptions,
    parameters: Mapping[str, Any] | None = None,
    written: dict[str, dict[str, Path]] | None = None,
) -> dict[str, dict[str, Path]]:
    """Within a flow: make what the store lacks of all experiments, the earlier first, and write each table.

    A row whose artifacts failed says why. `parameters`: of the flow, for the runs in a pool. `written`, files by
    experiment and kind, is filled also where this raises.

    UserError, StageError: what failed, all together, after the tables are written.
    """
    written = {} if written is None else written
    out = options.out.expanduser().resolve()
    outcome, note = Outcome(), get_run_logger().info
    if options.pool and options.seconds:
        raise UserError("seconds: does not end what runs in a pool; leave it out, or leave pool out")
    with tables_as_they_come(wanted, store, out, note), packed_as_it_goes(store.root, options.records):
        if options.pool:
            given = parameters or {}
            each = [given if len(wanted) == 1 else own_parameters(one, given) for one in wanted]
            failed = {
                one.name: run_in_pool(one, store, options.pool, options.at_once, own)
                for one, own in zip(wanted, each, strict=True)
            }
        else:
            outcome = run_graph([one.graph for one in wanted], store, execution, seconds=options.seconds)
            failed = {planned.name: _failed_recipes(planned, outcome) for planned in wanted}
            note("%s made, %d reused", counted(outcome.made, "artifact"), outcome.reused)
    for planned in wanted:
        try:
            files = write_tables(planned, store, out, options.figures, failed[planned.name])
        except StageError:  # there is nothing to show
            if not outcome.failed and not outcome.left:
                raise
            continue
        written[planned.name] = files
        behind = {recipe: artifact.identity for recipe, artifact in planned.graph.trained.items()}
        scale, title = planned.manifest.scale, planned.manifest.experiment.title
        publish(f"{planned.name}-{scale}", f"{title} at scale {scale}", files, store, behind)
    if options.pool and (why := {recipe: reason for one in failed.values() for recipe, reason in one.items()}):
        recipes = {reason: ", ".join(recipe for recipe in why if why[recipe] == reason) for reason in why.values()}
        reasons = "; ".join(f"{names}: {reason}" for reason, names in recipes.items())
        count = len({recipe for one in wanted for recipe in one.graph.evaluations})
        raise StageError(f"{len(why)} of {counted(count, 'model')} failed: {reasons}")
    outcome.raise_failures()
    return written


def paths_of(written: dict[str, dict[str, Path]]) -> dict[str, dict[str, str]]:
    return {name: {kind: str(path) for kind, path in files.items()} for name, files in written.items()}


def run_planned(wanted: Sequence[ResolvedExperiment], store: Store, execution: Execution, **given: Any) -> None:
    """`run_experiments` in a flow run of its own, for commands, which have planned already."""

    @flow(name="reproduce", flow_run_name="{experiment} {scale}", persist_result=False, on_cancellation=[cancel_runs])
    def run(experiment: str, scale: str) -> None:
        run_experiments(wanted, store, execution, **given)

    run(" ".join(planned.name for planned in wanted), wanted[0].manifest.scale)


def run_artifacts(graph: Graph, store: Store, execution: Execution, name: str) -> None:
    """Make what the store lacks of a graph, in a flow run `name`; errors as those of :func:`run_experiments`."""

    @flow(name="score", flow_run_name=lambda: name, persist_result=False, on_cancellation=[cancel_runs])
    def run() -> None:
        run_graph([graph], store, execution).raise_failures()

    run()


def _failed_recipes(planned: ResolvedExperiment, outcome: Outcome) -> dict[str, str]:
    """Why recipes of an experiment are not complete, by name: the first failure of what they need."""
    found: dict[str, str] = {}
    for piece, error in outcome.failed.items():
        for recipe in (name for artifact in piece.artifacts for name in planned.graph.wanted_by(artifact)):
            found.setdefault(recipe, " ".join(str(error).split()))
    return found


@dataclass
class Outcome:
    """What became of a run's pieces."""

    made: int = 0  # artifacts
    reused: int = 0
    failed: dict[Piece, Exception] = field(default_factory=dict)  # in the plan's order
    skipped: list[Piece] = field(default_factory=list)  # what depends on a failed one
    left: list[Piece] = field(default_factory=list)  # not begun or interrupted when the time was over

    def raise_failures(self) -> None:
        """Raise what went wrong, all together: a UserError if all of it is the user's, else a StageError."""
        if self.failed:
            users = all(isinstance(error, UserError) for error in self.failed.values())
            raise (UserError if users else StageError)("; ".join(self.failures()))
        if self.left:
            raise StageError(
                f"the time limit is reached: {_listed(self.left)} left; run the same command again to resume"
            )

    def failures(self) -> list[str]:
        lines = []
        for piece, error in self.failed.items():
            text = " ".join(str(error).split())
            lines.append(text if text.startswith(piece.label) else f"{piece.label}: {text}")
        return [*lines, *([f"not run because of that: {_listed(self.skipped)}"] if self.skipped else [])]


def _listed(pieces: list[Piece]) -> str:
    names = [piece.label for piece in pieces[:_LISTED]]
    return ", ".join(names) + (f" and {len(pieces) - _LISTED} more" if len(pieces) > _LISTED else "")


def run_graph(graphs: Sequence[Graph], store: Store, execution: Execution, *, seconds: float | None = None) -> Outcome:
    """Make what recipes need and the store does not hold, within a flow; the earlier graphs first.

    After `seconds`, waiting for GPUs included, what is at work is interrupted, to be resumed by the next run. A piece that
    fails ends what depends on it alone: see :meth:`Outcome.raise_failures`.
    """
    # A deployment's run ends with the process that started it: nobody could cancel it any more. The kernel forgets the
    # wish with the thread that makes it, so that only the main thread can make it.
    if "PREFECT__FLOW_RUN_ID" in os.environ and threading.current_thread() is threading.main_thread():
        end_with_parent(os.getppid())
    end = time.monotonic() + (float("inf") if seconds is None else seconds)
    note = get_run_logger().info
    with shared_lock(store.root, note):
        store.digests.save()  # of a new store's plan
        plans = [schedule(graph, store) for graph in graphs]
        stages = {entry.artifact.stage.name for plan in plans for entry in plan if entry.action != "reuse"}
        if not stages:
            return Outcome(reused=len({entry.artifact for plan in plans for entry in plan}))
        with held_gpus(execution, stages, note, end) as gpus:
            pieces = pieces_of(graphs, plans, by_length=bool(gpus))
            waiting = [piece for piece in pieces if not piece.reused]
            note(f"{counted(len(waiting), 'piece')} to make, {len(pieces) - len(waiting)} reused")
            if gpus is None:
                return Outcome(left=waiting)
            with Slots(store, execution, gpus) as slots:
                return _Run(pieces, slots, end).to_the_end()


class _Run:
    def __init__(self, pieces: Sequence[Piece], slots: Slots, end: float) -> None:
        self.pieces, self.slots, self.end = pieces, slots, end
        self.outcome = Outcome(reused=sum(len(piece.reasons) for piece in pieces))
        self.waiting = [piece for piece in pieces if not piece.reused]
        self.done = {piece for piece in pieces if piece.reused}
        self.at_work: set[Piece] = set()
        self.futures: dict[Piece, PrefectFuture[Any]] = {}
        self.finished: SimpleQueue[Piece] = SimpleQueue()

    def to_the_end(self) -> Outcome:
        for piece in self.pieces:
            if piece.reused:
                self._submit(piece)
        while True:
            while ready := self._next():
                self.waiting.remove(ready)
                self._submit(ready)
            if not self.at_work:
                break
            try:
                endless = self.slots.closing or self.end == float("inf")
                self._settle(self.finished.get(timeout=None if endless else max(0.0, self.end - time.monotonic())))
            except Empty:
                self.slots.close()
        failed = self.outcome.failed
        self.outcome.failed = {piece: failed[piece] for piece in self.pieces if piece in failed}
        gone = set(failed)
        for piece in self.waiting:  # parents come first
            if gone.intersection(piece.parents):
                gone.add(piece)
                self.outcome.skipped.append(piece)
            else:
                self.outcome.left.append(piece)
        return self.outcome

    def _next(self) -> Piece | None:
        if self.slots.closing or time.monotonic() >= self.end:
            return None
        return self.slots.take(piece for piece in self.waiting if self.done.issuperset(piece.parents))

    def _submit(self, piece: Piece) -> None:
        parents = [self.futures[parent] for parent in piece.parents if parent in self.futures]
        reason, run = (piece.reasons[0], None) if piece.reused else ("", partial(self.slots.run, piece))
        task = make.with_options(name=piece.stage, tags=[piece.stage])
        future = task.submit(piece.label, reason, run, wait_for=parents, return_state=False)
        self.futures[piece] = future
        self.at_work.add(piece)
        future.add_done_callback(lambda _: self.finished.put(piece))

    def _settle(self, piece: Piece) -> None:
        self.at_work.remove(piece)
        self.slots.release(piece)
        future = self.futures[piece]
        future.wait()  # takes the state over, which it does not before
        state = future.state
        if state.is_completed():
            made = state.result()
            self.outcome.made += made
            self.outcome.reused += len(piece.artifacts) - made
            self.done.add(piece)
        elif state.is_cancelled():
            self.outcome.left.append(piece)
        else:
            error = state.result(raise_on_failure=False)
            why = error if isinstance(error, Exception) else StageError(state.message or state.name)
            self.outcome.failed[piece] = why
