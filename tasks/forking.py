"""Processes forked from one that has imported torch and our stages: a worker is there at once and shares its memory.

Importing must start no thread that works, no CUDA and no OpenMP team: these do not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

_PRELOADED = [  # what is not installed is left out: whoever needs it reports it
    "tokenweight.tasks.preload",
    "torch",
    "transformers.models.llama.modeling_llama",
    "tokenweight.corpus.chunking",
    "tokenweight.evaluation.hf_model",
    "tokenweight.evaluation.run",
    "tokenweight.training.run",
    "tokenweight.training.scoring",
    "tokenweight.tasks.make",
]
_starting = threading.Lock()


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
