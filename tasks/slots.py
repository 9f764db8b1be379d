"""The slots of a run: each one worker process with its share of a GPU, several GPUs, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from tokenweight.embedded import at_signal
from tokenweight.errors import StageError, UserError
from tokenweight.pipeline import Store
from tokenweight.pipeline.store import Note
from tokenweight.processes import kill
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.forking import start
from tokenweight.tasks.gpus import VISIBLE
from tokenweight.tasks.pieces import ModelKey, Piece
from tokenweight.tasks.worker import work
from tokenweight.training.stopping import GRACE_SECONDS, Stopped

_LATE_SECONDS = 60.0  # behind a stage's own deadline, at which a launched one saves its step


class OutOfMemory(StageError):
    """A GPU's memory was full: it may go well in a new worker, when others have ended."""


class Interrupted(StageError):
    """The run stops: the piece is resumed by the next one."""


_KINDS = {kind.__name__: kind for kind in (UserError, StageError, Stopped, OutOfMemory)}  # what a worker answers


@dataclass(eq=False)
class Slot:
    """A place for one piece at a time; its worker starts with the first and stays."""

    number: int
    gpus: tuple[str, ...] = ()
    piece: Piece | None = None
    model: ModelKey | None = None  # that the worker keeps
    sees: tuple[str, ...] = ()  # GPUs of the worker, more than the slot's where its piece has others' too
    process: BaseProcess | None = None
    connection: Connection | None = None

    def end(self) -> None:
        """End the worker and what it has started."""
        process, self.process, self.model = self.process, None, None
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(process.pid)
            kill([worker, *worker.children(recursive=True)])
        process.join()
        if self.connection is not None:
            self.connection.close()


class Slots:
    """All slots of a run, and which piece comes next."""

    def __init__(self, store: Store, execution: Execution, gpus: Sequence[str]) -> None:
        self.store, self.execution, self.gpus, self.closing = store, execution, gpus, False
        on_gpus = [(name,) for _ in range(execution.slots_per_gpu) for name in gpus]
        without = [()] * (execution.slots or min(2, _cores()))
        self.slots = [Slot(number, names) for number, names in enumerate([*on_gpus, *without])]

    def __enter__(self) -> Slots:
        at_signal.append(self.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        at_signal.remove(self.close)

    def choose(self, ready: Iterable[Piece]) -> tuple[Piece, list[Slot]] | None:
        """The piece to begin now, and its slots; None: nothing that is ready has a place.

        By experiment, within one the long pieces first, then those whose model a free slot has loaded, then those whose
        model none has. A piece on several GPUs that waits for them keeps later ones from taking what has become free.
        """
        loaded = {slot.model for slot in self.slots if slot.model is not None}
        free = {slot.model for slot in self.slots if slot.model is not None and slot.piece is None}

        def order(piece: Piece) -> tuple[int, bool, bool, bool]:
            model = piece.model
            return piece.experiment, not piece.is_long, model not in free, model in loaded

        waiting = False  # for several GPUs
        for piece in sorted(ready, key=order):
            count = piece.gpus(self.execution) if self.gpus else 0
            if waiting and count:
                continue
            if taken := self._whole_gpus(count) if count > 1 else self._one_slot(piece, on_gpu=count == 1):
                return piece, taken
            waiting = waiting or count > 1
        return None

    def _one_slot(self, piece: Piece, on_gpu: bool) -> list[Slot]:
        own = [slot for slot in self.slots if slot.piece is None and bool(slot.gpus) == on_gpu]
        if on_gpu and piece.is_long:
            most = min(2, self.execution.slots_per_gpu)
            own = [slot for slot in own if sum(other.is_long for other in self._at_work(slot.gpus)) < most]
        own.sort(key=lambda slot: (slot.model != piece.model, slot.model is not None, len(self._at_work(slot.gpus))))
        return own[:1]

    def _whole_gpus(self, count: int) -> list[Slot]:
        """All slots of `count` GPUs on which nothing is at work."""
        idle = [name for name in self.gpus if not self._at_work((name,))]
        if len(idle) < min(count, len(self.gpus)):
            return []
        return [slot for slot in self.slots if slot.gpus and slot.gpus[0] in idle[:count]]

    def _at_work(self, gpus: tuple[str, ...]) -> list[Piece]:
        return [slot.piece for slot in self.slots if slot.piece is not None and slot.gpus == gpus]

    def begin(self, piece: Piece, taken: Iterable[Slot]) -> None:
        """Occupy slots, as `choose` gave them."""
        for slot in taken:
            slot.piece = piece

    def release(self, piece: Piece) -> None:
        """Free the slots of a piece."""
        for slot in self.slots:
            if slot.piece is piece:
                slot.piece = None

    def run(self, piece: Piece, note: Note, progress: Progress) -> tuple[int, int]:
        """Make a piece in the slots that it occupies and wait for it; how many artifacts were made and reused.

        Raises:
            UserError, StageError, Stopped: what the stage raised, or that the worker died.
            OutOfMemory: the GPU's memory was full.
            Interrupted: the run stops.
        """
        taken = [slot for slot in self.slots if slot.piece is piece]
        slot, sees = taken[0], tuple(dict.fromkeys(name for slot in taken for name in slot.gpus))
        for other in taken[1:]:  # their CUDA contexts would stay beside the piece
            other.end()
        full = slot.model is not None and slot.model != piece.model and slot.model.backend == "vllm"
        # vllm gives memory back only when its process ends
        if slot.sees != sees or full or slot.process is None or not slot.process.is_alive():
            slot.end()
            self._start(slot, sees)
        slot.model = piece.model or (None if piece.is_long else slot.model)
        interrupted = Interrupted(f"{piece.label}: interrupted; the next run resumes it")
        try:
            kind, *content = self._converse(slot, piece, note, progress)
        except (EOFError, OSError):
            code = self._died(slot)
            if self.closing:
                raise interrupted from None
            raise StageError(
                f"{piece.label}: its worker process ended ({code}) without a message; is there memory enough? "
                f"Its output is in {self._log(slot)}; run again to resume"
            ) from None
        if kind == "made":
            return content[0], len(piece.artifacts) - content[0] + len(piece.reasons)
        if self.closing:
            raise interrupted
        if content[0] == OutOfMemory.__name__:
            slot.end()
        raise _KINDS[content[0]](content[1])

    def _converse(self, slot: Slot, piece: Piece, note: Note, progress: Progress) -> tuple[Any, ...]:
        """Send the piece; the answer that ends it."""
        connection, deadline = slot.connection, self.execution.deadline_seconds
        assert connection is not None
        connection.send(piece.artifacts)
        begun = time.monotonic()
        while True:
            left = None if deadline is None else max(0.0, begun + deadline + _LATE_SECONDS - time.monotonic())
            if not connection.poll(left):
                slot.end()
                raise StageError(
                    f"{piece.label}: ended after {deadline} s (execution.deadline_seconds); run again to resume"
                )
            message: tuple[Any, ...] = connection.recv()
            match message:
                case ("note", text):
                    note(text)
                case ("progress", done, total, what):
                    progress(done, total, what)
                case _:
                    return message

    def _start(self, slot: Slot, sees: tuple[str, ...]) -> None:
        if self.closing:
            raise Interrupted("interrupted")
        environment = dict(os.environ)
        if self.gpus:
            environment[VISIBLE] = ",".join(sees)
        threads = int(environment.get("OMP_NUM_THREADS") or max(1, _cores() // len(self.slots)))
        slot.process, slot.connection = start(
            work, self.store.root, self.execution, self._log(slot), os.getcwd(), environment, threads
        )
        slot.sees = sees
        if self.closing:  # meanwhile
            slot.end()
            raise Interrupted("interrupted")

    def _died(self, slot: Slot) -> str:
        if slot.process is None:
            return "ended"
        slot.process.join(5)
        code = slot.process.exitcode
        slot.end()
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def _log(self, slot: Slot) -> Path:
        return self.store.root / "logs" / f"worker-{slot.number}.log"

    def close(self, gently: bool = True) -> None:
        """End all workers; `gently`: those at work may save a step first, GRACE_SECONDS at most."""
        self.closing = True
        at_work = [slot.process for slot in self.slots if gently and slot.piece and slot.process]
        for process in at_work:
            process.terminate()
        end = time.monotonic() + GRACE_SECONDS + 5
        for process in at_work:
            process.join(max(0.0, end - time.monotonic()))
        for slot in self.slots:
            slot.end()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
