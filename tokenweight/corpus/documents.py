"""What a corpus is made of: documents, and in the synthetic novel the kind of each piece of text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Split = Literal["train", "validation"]


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

    `fact` numbers the fact within its document for values (INTRODUCTION, and SHORT_RECALL for every later
    mention: which recalls are long-range is known only once the text is tokens); None for other kinds.
    """

    start: int
    end: int
    kind: Kind
    fact: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a corpus; `domain` is its source within the corpus, `spans` are sorted and do not overlap."""

    id: str
    text: str
    domain: str = ""
    spans: tuple[Span, ...] = ()
