"""Which tokens of which document are where in which sequence, and what that leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Segments(NamedTuple):
    """Pieces of documents laid into sequences; all arrays [segments], sorted by (sequence, position).

    `position`: where in the sequence the piece begins, counting from behind the BOS; `start`: its first token within
    the document; `length` in tokens. Places that no piece covers hold EOS.
    """

    sequence: Ints
    position: Ints
    document: Ints
    start: Ints
    length: Ints

    @property
    def sequences(self) -> int:
        return int(self.sequence[-1]) + 1 if len(self.sequence) else 0

    @staticmethod
    def one_after_another(parts: Sequence[Segments]) -> Segments:
        """All sequences of several, numbered through."""
        firsts = np.cumsum([0, *(part.sequences for part in parts)])
        numbered = [part._replace(sequence=part.sequence + first) for part, first in zip(parts, firsts, strict=False)]
        return Segments(*map(np.concatenate, zip(*numbered, strict=True)))

    def select(self, order: Ints) -> Segments:
        """The sequences named by `order`, numbered anew in that order."""
        anew = np.full(self.sequences, len(order))
        anew[order] = np.arange(len(order))
        rows = np.argsort(anew[self.sequence], kind="stable")
        rows = rows[anew[self.sequence[rows]] < len(order)]
        return Segments(anew[self.sequence[rows]], *(column[rows] for column in self[1:]))

    def distinct_tokens(self, lengths: Ints) -> int:
        """Tokens of the documents (`lengths` [documents]) that are in at least one sequence."""
        if not len(self.sequence):
            return 0
        begin = (np.cumsum(lengths) - lengths)[self.document] + self.start
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], (begin + self.length)[order]
        covered = np.concatenate([[0], np.maximum.accumulate(end)[:-1]])
        return int(np.clip(end - np.maximum(begin, covered), 0, None).sum())


def per_document(lengths: Ints, long_tokens: int, *, bos: bool, skipped: int = 0, step: int | None = None) -> Segments:
    """Each document on its own: BOS and N-1 tokens, step N-1, a short remainder left out (Section 4, Datasets).

    Without BOS a sequence is N tokens at the same step: its first token is the last of the one before, so that every
    token but the document's first is predicted exactly once either way. `skipped`: a document's first tokens that no
    sequence has.
    """
    payload, step = long_tokens - int(bos), step or long_tokens - 1
    left = lengths - skipped
    counts = np.where(left >= payload, 1 + (left - payload) // step, 0)
    document = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    ones = np.ones(len(document), np.int64)
    return Segments(np.arange(len(document)), ones * 0, document, skipped + number * step, ones * payload)


def packed(documents: Ints, lengths: Ints, payload: int, separator: int) -> Segments:
    """Pieces (`documents`, the first `lengths` tokens of each) end to end, `separator` tokens apart, cut into rows.

    A piece that does not fit continues in the next row; the last row is left out where it is not full.
    """
    starts = np.cumsum(lengths + separator) - (lengths + separator)  # in the stream of all rows
    total = int(starts[-1] + lengths[-1]) if len(lengths) else 0
    first_row, last_row = starts // payload, (starts + np.maximum(lengths, 1) - 1) // payload
    counts = np.where(lengths > 0, last_row - first_row + 1, 0)
    piece = np.repeat(np.arange(len(lengths)), counts)
    row = np.repeat(first_row, counts) + np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.maximum(starts[piece], row * payload)
    end = np.minimum(starts[piece] + lengths[piece], (row + 1) * payload)
    segments = Segments(row, begin - row * payload, documents[piece], begin - starts[piece], end - begin)
    return Segments(*(column[row < total // payload] for column in segments))
