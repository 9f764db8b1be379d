"""The slots of a run: each one worker process with its share of a GPU, several GPUs, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from tokenweight.embedded import at_signal
from tokenweight.errors import StageError, UserError
from tokenweight.pipeline import Store
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.forking import start
from tokenweight.tasks.gpus import VISIBLE
from tokenweight.tasks.pieces import ModelKey, Piece
from tokenweight.tasks.worker import Setting, work
from tokenweight.training.stopping import GRACE_SECONDS, Stopped

_KINDS: dict[str, type[Exception]] = {"UserError": UserError, "StageError": StageError, "Stopped": Stopped}
_LATE_SECONDS = 60.0  # behind a stage's own deadline, at which a launched one saves its step


class Transient(StageError):
    """What may go well in a new worker: the last one died, or a GPU's memory was full."""


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
    process: BaseProcess | None = None
    connection: Connection | None = None

    def end(self) -> None:
        """End the worker and what it has started."""
        process, self.process, self.model = self.process, None, None
        if process is None:
            return
        tree: list[psutil.Process] = []
        with suppress(psutil.Error):
            tree = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.join()
        for child in tree:
            with suppress(psutil.Error):
                child.kill()
        if self.connection is not None:
            self.connection.close()


@dataclass
class Slots:
    """All slots of a run, and which piece comes next."""

    store: Store
    execution: Execution
    gpus: Sequence[str]
    slots: list[Slot] = field(init=False)
    closing: bool = False

    def __post_init__(self) -> None:
        on_gpus = [(name,) for _ in range(self.execution.slots_per_gpu) for name in self.gpus]
        without = [()] * (self.execution.slots or min(2, _cores()))
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

        blocked: set[str] = set()
        for piece in sorted(ready, key=order):
            if taken := self._place(piece, blocked):
                return piece, taken
            if piece.gpus(self.execution) > 1:
                blocked.update(self.gpus)
        return None

    def _place(self, piece: Piece, blocked: set[str]) -> list[Slot]:
        count = piece.gpus(self.execution) if self.gpus else 0
        if not count:
            own = [slot for slot in self.slots if slot.piece is None and not slot.gpus]
        elif count > 1:
            return self._whole_gpus(count)
        else:
            own = [
                slot for slot in self.slots
                if slot.piece is None and slot.gpus and slot.gpus[0] not in blocked
                and (not piece.is_long or self._has_room_for_long(slot.gpus[0]))
            ]  # fmt: skip
        own.sort(key=lambda slot: (slot.model != piece.model, slot.model is not None, self._busy(slot.gpus)))
        return own[:1]

    def _whole_gpus(self, count: int) -> list[Slot]:
        """All slots of `count` GPUs on which nothing is at work."""
        idle = [name for name in self.gpus if not self._busy((name,))]
        if len(idle) < min(count, len(self.gpus)):
            return []
        return [slot for slot in self.slots if slot.gpus and slot.gpus[0] in idle[:count]]

    def _busy(self, gpus: tuple[str, ...]) -> int:
        return sum(slot.piece is not None for slot in self.slots if slot.gpus[:1] == gpus[:1])

    def _has_room_for_long(self, gpu: str) -> bool:
        at_work = sum(slot.piece is not None and slot.piece.is_long for slot in self.slots if slot.gpus[:1] == (gpu,))
        return at_work < min(2, self.execution.slots_per_gpu)

    def begin(self, piece: Piece, taken: Iterable[Slot]) -> None:
        """Occupy slots, as `choose` gave them."""
        for slot in taken:
            slot.piece = piece

    def release(self, piece: Piece) -> None:
        """Free the slots of a piece."""
        for slot in self.slots:
            if slot.piece is piece:
                slot.piece = None

    def run(self, piece: Piece, note: Callable[[str], None], progress: Progress) -> tuple[int, int]:
        """Make a piece in the slots that it occupies and wait for it; how many artifacts were made and reused.

        Raises:
            UserError, StageError, Stopped: what the stage raised.
            Transient: the worker died, or the GPU's memory was full; a new worker may do better.
            Interrupted: the run stops.
        """
        taken = [slot for slot in self.slots if slot.piece is piece]
        slot, sees = taken[0], tuple(dict.fromkeys(name for slot in taken for name in slot.gpus))
        for other in taken[1:]:  # their CUDA contexts would stay beside the piece
            other.end()
        full = slot.model is not None and slot.model != piece.model and slot.model.backend == "vllm"
        # vllm gives memory back only when its process ends
        if slot.sees != sees or full:
            slot.end()
        if slot.process is None or not slot.process.is_alive():
            slot.end()
            self._start(slot, sees)
        slot.model = piece.model or (None if piece.is_long else slot.model)
        try:
            kind, *content = self._converse(slot, piece, note, progress)
        except (EOFError, OSError):
            code = self._died(slot)
            if self.closing:
                raise Interrupted(f"{piece.label}: interrupted; the next run resumes it") from None
            raise Transient(
                f"{piece.label}: its worker process ended ({code}) without a message; is there memory enough? "
                f"Its output is in {self._log(slot)}"
            ) from None
        if kind == "made":
            made, reused = content
            return made, reused
        if self.closing:
            raise Interrupted(f"{piece.label}: interrupted; the next run resumes it")
        if content[0] == "OutOfMemory":
            slot.end()
            raise Transient(f"{piece.label}: {content[1]}")
        raise _KINDS[content[0]](content[1])

    def _converse(self, slot: Slot, piece: Piece, note: Callable[[str], None], progress: Progress) -> tuple[Any, ...]:
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
        if sees:
            environment[VISIBLE] = ",".join(sees)
        elif self.gpus:
            environment[VISIBLE] = ""
        threads = int(environment.get("OMP_NUM_THREADS") or max(1, _cores() // len(self.slots)))
        setting = Setting(self.store.root, self.execution, self._log(slot), os.getcwd(), environment, threads)
        slot.process, slot.connection = start(work, setting)
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

    def _log(self, slot: Slot) -> Any:
        return self.store.root / "logs" / f"worker-{slot.number}.log"

    def close(self, gently: bool = True) -> None:
        """End all workers; `gently`: those at work may save a step first, GRACE_SECONDS at most."""
        self.closing = True
        at_work = [
            slot.process for slot in self.slots if gently and slot.piece is not None and slot.process is not None
        ]
        for process in at_work:
            process.terminate()
        end = time.monotonic() + GRACE_SECONDS + 5
        for process in at_work:
            process.join(max(0.0, end - time.monotonic()))
        for slot in self.slots:
            slot.end()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
