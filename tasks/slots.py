"""The slots of a run: each one worker process with its share of a GPU, several GPUs, or none."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

import psutil

from tokenweight.embedded import at_signal
from tokenweight.errors import StageError
from tokenweight.pipeline.store import Note, Store
from tokenweight.processes import kill
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.gpus import VISIBLE
from tokenweight.tasks.pieces import ModelKey, Piece
from tokenweight.tasks.worker import OutOfMemory, start, work
from tokenweight.training.launch import STOP_SECONDS


class Interrupted(StageError):
    """The run stops: the piece is resumed by the next one."""


@dataclass(eq=False)
class Slot:
    """A place for one piece at a time; its worker starts with the first and stays."""

    number: int
    gpus: tuple[str, ...] = ()
    piece: Piece | None = None
    model: ModelKey | None = None  # that the worker keeps
    sees: tuple[str, ...] = ()  # GPUs of the worker, more than the slot's where its piece has others' too
    worker: tuple[BaseProcess, Connection] | None = None

    def end(self) -> None:
        worker, self.worker, self.model = self.worker, None, None
        if worker is None:
            return
        process, connection = worker
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(process.pid)
            kill([tree, *tree.children(recursive=True)])
        process.join()
        connection.close()


class Slots:
    """All slots of a run, and which piece comes next."""

    def __init__(self, store: Store, execution: Execution, gpus: Sequence[str]) -> None:
        self.store, self.execution, self.gpus, self.closing = store, execution, gpus, False
        on_gpus = [(name,) for _ in range(execution.slots_per_gpu) for name in gpus]
        without = [()] * (
            execution.slots or min(4 if gpus else 2, _cores())
        )  # beside GPUs they make prompts and chunks
        self.slots = [Slot(number, names) for number, names in enumerate([*on_gpus, *without])]

    def __enter__(self) -> Self:
        at_signal.append(self.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        at_signal.remove(self.close)

    def take(self, ready: Iterable[Piece]) -> Piece | None:
        """The piece to begin now, whose slots are taken; None: nothing that is ready has a place.

        By experiment and seed, within one the long pieces first, then those whose model a free slot has loaded, then those whose
        model none has; among these a model's quickest evaluation, whose numbers come soon. A piece on several GPUs that waits
        for them keeps later ones from taking what has become free.
        """
        loaded = {slot.model for slot in self.slots if slot.model is not None}
        free = {slot.model for slot in self.slots if slot.model is not None and slot.piece is None}

        def order(piece: Piece) -> tuple[int, int, bool, bool, bool, bool]:
            model = piece.model
            of_models = model not in free, model in loaded, not piece.is_quickest
            return piece.experiment, piece.seed, not piece.is_long, *of_models

        waiting = False  # for several GPUs
        for piece in sorted(ready, key=order):
            count = piece.gpus(self.execution) if self.gpus else 0
            if waiting and count:
                continue
            taken = self._whole_gpus(count) if count > 1 else self._one_slot(piece, on_gpu=count == 1)
            for slot in taken:
                slot.piece = piece
            if taken:
                return piece
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

    def release(self, piece: Piece) -> None:
        for slot in self.slots:
            if slot.piece is piece:
                slot.piece = None

    def run(self, piece: Piece, note: Note, progress: Progress) -> int:
        """Make a piece in the slots that it has and wait for it; how many artifacts were made, not reused.

        Raises what the stage raised, StageError where the worker died, OutOfMemory, or Interrupted where the run stops.
        """
        slot, *others = (slot for slot in self.slots if slot.piece is piece)
        sees = tuple(dict.fromkeys(name for one in (slot, *others) for name in one.gpus))
        for other in others:  # their CUDA contexts would stay beside the piece
            other.end()
        full = slot.model is not None and slot.model != piece.model and slot.model.backend == "vllm"
        # vllm gives memory back only when its process ends
        if slot.worker and (slot.sees != sees or full or not slot.worker[0].is_alive()):
            slot.end()
        process, connection = slot.worker or self._start(slot, sees)
        slot.model = piece.model or (None if piece.is_long else slot.model)
        if self.closing:  # meanwhile
            slot.end()
        try:
            return self._converse(slot, connection, piece, note, progress)
        except Exception as error:
            if self.closing:
                raise Interrupted(f"{piece.label}: interrupted; the next run resumes it") from None
            if isinstance(error, EOFError | OSError):
                process.join(5)
                slot.end()
                code = process.exitcode or 0
                raise StageError(
                    f"{piece.label}: its worker process ended ({f'signal {-code}' if code < 0 else f'exit code {code}'}) "
                    f"without a message; check memory and disk. Its output is in {self._log(slot)}; run again to resume"
                ) from None
            if isinstance(error, OutOfMemory):
                slot.end()
            raise

    def _converse(self, slot: Slot, connection: Connection, piece: Piece, note: Note, progress: Progress) -> int:
        """Send the piece and hear its worker to the end."""
        deadline = self.execution.deadline_seconds
        connection.send(piece.artifacts)
        begun = time.monotonic()
        while True:
            left = None if deadline is None else max(0.0, begun + deadline - time.monotonic())
            if not connection.poll(left):
                _end_gently([slot])
                slot.end()
                raise StageError(
                    f"{piece.label}: ended after {deadline} s (execution.deadline_seconds); run again to resume"
                )
            match connection.recv():
                case ("note", text):
                    note(text)
                case ("progress", done, total, what):
                    progress(done, total, what)
                case ("failed", error):
                    raise error
                case ("made", int(made)):
                    return made

    def _start(self, slot: Slot, sees: tuple[str, ...]) -> tuple[BaseProcess, Connection]:
        environment = dict(os.environ)
        if self.gpus:
            environment[VISIBLE] = ",".join(sees)
        environment["OMP_NUM_THREADS"] = environment.get("OMP_NUM_THREADS") or str(max(1, _cores() // len(self.slots)))
        given = self.store.root, self.execution, self._log(slot), os.getcwd(), environment
        slot.worker, slot.sees = start(work, *given), sees
        return slot.worker

    def _log(self, slot: Slot) -> Path:
        return self.store.root / "logs" / f"worker-{slot.number}.log"

    def close(self, gently: bool = True) -> None:
        """End all workers; `gently`: those at work may save a step first, STOP_SECONDS at most."""
        self.closing = True
        if gently:
            _end_gently(self.slots)
        for slot in self.slots:
            slot.end()


def _end_gently(slots: Sequence[Slot]) -> None:
    """Let the workers that are at work save a step and end."""
    at_work = [slot.worker[0] for slot in slots if slot.piece and slot.worker]
    for process in at_work:
        process.terminate()
    end = time.monotonic() + STOP_SECONDS + 5
    for process in at_work:
        process.join(max(0.0, end - time.monotonic()))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
