"""What a corpus is made of: documents, and in the synthetic novel the kind of each piece of text; documents in their order."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tokenweight.processes import end_with_parent

Split = Literal["train", "validation"]
MANY = 2048  # documents: from here on processes pay; as many are in memory at a time
CHUNK = 16


class Kind(IntEnum):
    """What a token of the synthetic novel is (the codes in ``kinds.npy``; 0 is everything unlabelled)."""

    NONE = 0
    LONG_RECALL = 1  # a fact's value, last mentioned more than short_tokens before
    SHORT_RECALL = 2  # a fact's value, last mentioned at most short_tokens before
    EASY = 3  # determined by the words before it
    NAME = 4  # the key that precedes a fact's value
    INTRODUCTION = 5  # a fact's value where the sequence states it for the first time
    HARD = 6  # a random word


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a document that are of one kind.

    `fact` is the fact whose value it is, the same object at each mention (INTRODUCTION, and SHORT_RECALL for every later
    one: which recalls are long-range is known only once the text is tokens); None for other kinds.
    """

    start: int
    end: int
    kind: Kind
    fact: Hashable = None


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus; `domain` is its source within the corpus, `spans` are sorted and do not overlap."""

    id: str
    text: str
    domain: str = ""
    spans: tuple[Span, ...] = ()


def in_order(make: Callable[[int], Document], count: int, workers: int | None = None) -> Iterator[Document]:
    """`make(0)`, `make(1)`, ... `make(count - 1)`, where there are MANY by all cores; `make` must be picklable then."""
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
