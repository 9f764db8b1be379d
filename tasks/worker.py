"""The process behind a slot: it makes one piece after the other, and keeps the last model that it evaluated."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tokenweight.embedded import end_worker_at_signal
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.stages import Evaluate
from tokenweight.pipeline import Store
from tokenweight.pipeline.make import made as make
from tokenweight.pipeline.stage import Artifact
from tokenweight.processes import end_with_parent
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import ModelKey, model_key
from tokenweight.training.stopping import Stopped

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class Setting:
    """Where a worker works. The process that it is forked from has the environment of its own start: ours comes here."""

    store: Path
    execution: Execution
    log: Path
    directory: str
    environment: dict[str, str]
    threads: int


def work(connection: Connection, setting: Setting) -> None:
    """Make what comes over the connection until nobody sends any more.

    Answers: ("note", text), ("progress", done, total, what), and for each piece at last ("made", made, reused) or
    ("failed", kind, text), where kind is UserError, StageError, Stopped or OutOfMemory.
    """
    end_with_parent(os.getppid(), signal.SIGKILL)
    threading.Thread(target=_end_with_owner, name="owner", daemon=True).start()
    os.environ.clear()
    os.environ.update(setting.environment)
    os.chdir(setting.directory)
    setting.log.parent.mkdir(parents=True, exist_ok=True)
    with setting.log.open("ab") as log:  # never a pipe of the run's, which would stay open with what is started here
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    end_worker_at_signal()
    import torch

    torch.set_num_threads(setting.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(setting.threads))  # of what is launched here
    worker = _Worker(connection, Store(setting.store), setting.execution)
    while True:
        try:
            artifacts: list[Artifact] = connection.recv()
        except EOFError:
            return
        connection.send(worker.answer(artifacts))


def _end_with_owner() -> None:
    """The kernel's signal follows the process that forked us; whose work we do is seen by its end of a pipe."""
    import psutil

    owner = multiprocessing.parent_process()
    assert owner is not None
    wait([owner.sentinel])
    for child in psutil.Process().children():  # what has launched processes of its own ends them when we are gone
        with suppress(psutil.Error):
            child.terminate()
    os._exit(1)


class _Worker:
    def __init__(self, connection: Connection, store: Store, execution: Execution) -> None:
        self._connection, self._store, self._execution = connection, store, execution
        self._model: tuple[ModelKey, Any] | None = None
        self._reported = 0.0

    def answer(self, artifacts: list[Artifact]) -> tuple[Any, ...]:
        """Make a piece's artifacts; what to answer."""
        try:
            return ("made", *self._make(artifacts))
        except (UserError, StageError) as error:
            kind = next(kind for kind in (UserError, Stopped, StageError) if isinstance(error, kind))
            return "failed", kind.__name__, str(error)
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            kind_name = "OutOfMemory" if _is_out_of_memory(error) else "StageError"
            return "failed", kind_name, f"{type(error).__name__}: {error}"
        finally:
            _give_memory_back()

    def _make(self, artifacts: list[Artifact]) -> tuple[int, int]:
        from tokenweight.tasks.evaluate import evaluate_units

        if isinstance(artifacts[0].stage, Evaluate):
            return evaluate_units(artifacts, self._store, self._execution, self._progress, self._note, self._loaded)
        self._model = None
        made = 0
        for done, artifact in enumerate(artifacts, start=1):
            made += not make(artifact, self._store, self._execution, self._progress, self._note)
            if len(artifacts) > 1:
                self._progress(done, len(artifacts), "artifacts")
        return made, len(artifacts) - made

    def _loaded(self, artifact: Artifact, checkpoint_dir: Path) -> Any:
        """The model of an evaluation: four benchmarks of a checkpoint load it once."""
        from tokenweight.evaluation.backends import load

        key = model_key(artifact)
        if self._model is None or self._model[0] != key:
            self._model = None
            _give_memory_back()
            print(f"loads the model {checkpoint_dir}", flush=True)
            self._model = key, load(key.backend, checkpoint_dir, key.context_tokens, self._execution, key.precision)
        return self._model[1]

    def _note(self, text: str) -> None:
        self._connection.send(("note", text))

    def _progress(self, done: float, total: int, what: str) -> None:
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS:
            self._reported = now
            self._connection.send(("progress", done, total, what))


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _give_memory_back() -> None:
    """So that the other workers of the GPU have it."""
    import torch

    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
