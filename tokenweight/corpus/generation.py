"""Generated documents in their order, made by all cores where there are many of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tokenweight.corpus.documents import Document
from tokenweight.processes import end_with_parent

MANY = 2048  # documents: from here on processes pay; as many are in memory at a time
CHUNK = 16


def in_order(make: Callable[[int], Document], count: int, workers: int | None = None) -> Iterator[Document]:
    """`make(0)`, `make(1)`, ... `make(count - 1)`; `make` must be picklable where there are MANY.

    `workers` None: as many processes as cores.
    """
    processes = workers or len(os.sched_getaffinity(0))
    if count < MANY or processes < 2:
        yield from map(make, range(count))
        return
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),  # our own children, so that they can end with us
        initializer=end_with_parent,
        initargs=(os.getpid(), signal.SIGKILL),
    )
    with pool:
        for first in range(0, count, MANY):
            yield from pool.map(make, range(first, min(first + MANY, count)), chunksize=CHUNK)
