"""A plan as Prefect task runs: each piece is submitted when its parents are finished and a slot is free."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger

from tokenweight.errors import StageError, UserError
from tokenweight.pipeline import Store
from tokenweight.pipeline.locks import shared_lock
from tokenweight.planning.graph import Graph
from tokenweight.planning.plan import schedule
from tokenweight.processes import end_with_parent
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import packed_as_it_goes
from tokenweight.tasks.gpus import held_gpus
from tokenweight.tasks.pieces import Piece, pieces_of
from tokenweight.tasks.slots import Slots
from tokenweight.tasks.stages import task_of

_LISTED = 8  # skipped pieces that are named


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
            raise StageError(f"the time is over: {_listed(self.left)} left; run the same command again to resume")

    def failures(self) -> list[str]:
        """A line for each failure, and one for what was skipped because of them."""
        lines = []
        for piece, error in self.failed.items():
            text = " ".join(str(error).split())
            lines.append(text if text.startswith(piece.label) else f"{piece.label}: {text}")
        return [*lines, *([f"not run because of that: {_listed(self.skipped)}"] if self.skipped else [])]


def _listed(pieces: list[Piece]) -> str:
    names = [piece.label for piece in pieces[:_LISTED]]
    return ", ".join(names) + (f" and {len(pieces) - _LISTED} more" if len(pieces) > _LISTED else "")


def run_graph(
    graphs: Sequence[Graph],
    store: Store,
    execution: Execution,
    *,
    seconds: float = float("inf"),
    records: Path | None = None,
) -> Outcome:
    """Make what recipes need and the store does not hold, within a flow; the earlier graphs first.

    After `seconds`, waiting for GPUs included, what is at work is interrupted, to be resumed by the next run. `records`:
    an archive of the store's records, written every minute and at the end. A piece that fails ends what depends on it
    alone: see :meth:`Outcome.raise_failures`.
    """
    # A deployment's run ends with the process that started it: nobody could cancel it any more. The kernel forgets the
    # wish with the thread that makes it, so that only the main thread can make it.
    if "PREFECT__FLOW_RUN_ID" in os.environ and threading.current_thread() is threading.main_thread():
        end_with_parent(os.getppid())
    end = time.monotonic() + seconds
    note = get_run_logger().info
    with shared_lock(store.root, note), packed_as_it_goes(store.root, records):
        plans = [schedule(graph, store) for graph in graphs]
        stages = {entry.artifact.stage.name for plan in plans for entry in plan if entry.action != "reuse"}
        if not stages:
            return Outcome(reused=len({entry.artifact for plan in plans for entry in plan}))
        with held_gpus(execution, stages, note, end) as gpus:
            pieces = pieces_of(graphs, plans, by_length=len(gpus or ()) * execution.slots_per_gpu > 1)
            waiting = [piece for piece in pieces if not piece.reused]
            note(f"{len(waiting)} pieces to make, {len(pieces) - len(waiting)} reused")
            if gpus is None:
                return Outcome(left=waiting)
            with Slots(store, execution, gpus) as slots:
                return _Run(pieces, slots, end).to_the_end()


class _Run:
    """The pieces of a run, by what has become of them."""

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
        future = task_of(piece.stage).submit(piece.label, reason, run, wait_for=parents, return_state=False)
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
