"""The process behind a slot: it makes one piece after the other, and keeps the last model that it evaluated.

It is forked from one that has imported torch and our stages, so that it is there at once and shares its memory. Importing
must start no thread that works, no CUDA and no OpenMP team: these do not survive a fork.
"""

import errno
import gc
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from tokenweight.errors import StageError, UserError
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Store
from tokenweight.processes import call_at_signals, end_with_parent, kill
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import ModelKey, make_piece, model_key
from tokenweight.training.launch import stop_all

PROGRESS_SECONDS = 0.5
LEAST_FREE_BYTES = 2**20  # a disk with less is full
_PRELOADED = [  # what is not installed is left out: whoever needs it reports it
    "tokenweight.tasks.preload",
    "torch",
    "transformers.models.llama.modeling_llama",
    "tokenweight.corpus.chunking",
    "tokenweight.evaluation.hf_model",
    "tokenweight.evaluation.run",
    "tokenweight.training.run",
    "tokenweight.training.scoring",
    "tokenweight.tasks.worker",
]
_starting = threading.Lock()


class OutOfMemory(StageError):
    """A GPU's memory was full: it may go well in a new worker, when others have ended."""


def warm_up() -> None:
    """Let the imports begin, beside whatever comes next. Set the environment that torch reads at its import before."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    multiprocessing.forkserver.ensure_running()


def start(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start `target(connection, *arguments)` in a process of its own; the process and our end of the connection."""
    context = multiprocessing.get_context("forkserver")
    with _starting:
        warm_up()
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(theirs, *arguments))
        main = sys.modules["__main__"]
        # multiprocessing would import the main module again in each process: a script without a guard would run again,
        # and Prefect's own takes seconds.
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
        theirs.close()
    return process, ours


def work(
    connection: Connection, store: Path, execution: Execution, log: Path, directory: str, environment: dict[str, str]
) -> None:
    """Make what comes over the connection until nobody sends any more, in the run's `directory` and `environment`.

    Answers: ("note", text), ("progress", done, total, what), and for each piece at last ("made", how many) or
    ("failed", a UserError or StageError).
    """
    end_with_parent(os.getppid(), signal.SIGKILL)
    threading.Thread(target=_end_with_owner, name="owner", daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:  # never a pipe of the run's, which would stay open with what is started here
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    call_at_signals(_end, signal.SIGINT, signal.SIGTERM)
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))  # the first level's
    worker = _Worker(connection, Store(store), execution)
    while True:
        try:
            artifacts: list[Artifact] = connection.recv()
        except EOFError:
            return
        connection.send(worker.answer(artifacts))


def _end(number: int) -> None:
    if number == signal.SIGTERM:
        stop_all()
    kill(psutil.Process().children(recursive=True), grace_seconds=5)
    os._exit(128 + number)


def _end_with_owner() -> None:
    """The kernel's signal follows the process that forked us; whose work we do is seen by its end of a pipe."""
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
        import torch

        if artifacts[0].stage.name != "evaluate":
            self._model = None
        try:
            made = make_piece(artifacts, self._store, self._execution, self._progress, self._note, self._loaded)
        except (UserError, StageError) as error:
            return "failed", error
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            kind = OutOfMemory if isinstance(error, torch.OutOfMemoryError) else StageError
            return "failed", kind(_reason(error, self._store.root))
        else:
            return "made", made
        finally:
            _give_memory_back()

    def _loaded(self, artifact: Artifact, checkpoint_dir: Path) -> Any:
        """The model of an evaluation: four benchmarks of a checkpoint load it once."""
        from tokenweight.evaluation.run import load

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


def _reason(error: Exception, store: Path) -> str:
    """An unforeseen error in words: where the disk is full, torch speaks of positions in its own file."""
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or shutil.disk_usage(store)[2] < LEAST_FREE_BYTES:
        return "no space is left on the disk: free some, and run again; complete artifacts are kept"
    if number == errno.EMFILE:
        return "too many files are open: raise `ulimit -n`, and run again"
    if (
        number == errno.ENOMEM or isinstance(error, MemoryError) or "can't allocate memory" in str(error)
    ):  # torch's, on a CPU
        return "memory is short: free some or raise `ulimit -v`, and run again; what is complete is kept"
    return f"{type(error).__name__}: {error}"


def _give_memory_back() -> None:
    """So that the other workers of the GPU have it."""
    import torch

    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
