"""Imported once by the process that all workers are forked from, so that none of them imports torch again.

Importing must start no thread that works, no CUDA and no OpenMP team: these do not survive a fork (tests/tasks holds it).
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from importlib import import_module

from tqdm import tqdm

_HEAVY = (
    "torch",
    "transformers.models.llama.modeling_llama",
    "tokenweight.corpus.chunking",
    "tokenweight.evaluation.hf_model",
    "tokenweight.evaluation.run",
    "tokenweight.training.run",
    "tokenweight.training.scoring",
    "tokenweight.tasks.evaluate",
)

# A scheduler sends TERM to every process of a job: this one ends with its workers, which may need time to save a step.
signal.signal(signal.SIGTERM, signal.SIG_IGN)

# Its own lock holds a semaphore of the system in each worker, which a worker that is killed leaves behind.
tqdm.set_lock(threading.RLock())

for _name in _HEAVY:
    with suppress(ImportError):  # an optional package; whoever needs it says so
        import_module(_name)
