"""Which tokens of which document are where in which sequence, and what that leaves out.

Documents each on their own (Section 4), drawn by their lengths (LCDE), or from several corpora in fixed shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Chunking, MixtureCorpus

Ints = NDArray[np.int64]
Shares = dict[str, float]


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


def lcde(
    lengths: Ints, domains: list[str], chunking: Chunking, *, bos: bool, separator: int
) -> tuple[Segments, dict[str, Shares]]:
    """Long-Context Data Engineering (Fu et al. 2024): more long documents, the same domains, packed at random.

    Documents have `lengths` [documents] tokens and are of `domains` [documents]. Within each domain, those longer than
    `long_document_tokens` are drawn `long_document_factor` times as often as the others; each domain keeps its share of
    all tokens; what is drawn is put end to end in random order, EOS between, and cut into sequences. As many tokens are
    drawn as the corpus has, or as `chunking.sequences` needs. With `chunking.read` "enough" copies of a document are far
    apart: where at most 1 / `long_document_factor` of the corpus is drawn, none comes twice, but for chance in a domain
    of few documents. Returns the sequences and each domain's shares of tokens before and after. Raises UserError where
    the corpus has not enough with its domains in proportion.
    """
    rng = np.random.default_rng(chunking.seed)
    payload = chunking.long_tokens - int(bos)
    names = sorted(set(domains))
    domain = np.searchsorted(names, domains)
    copies = np.where(lengths > chunking.long_document_tokens, chunking.long_document_factor, 1)
    tokens = np.bincount(domain, lengths, len(names))
    available = np.bincount(domain, lengths * copies, len(names))
    wanted = int(lengths.sum()) if chunking.sequences is None else chunking.sequences * payload
    most = int(min(a * tokens.sum() / t for a, t in zip(available, tokens, strict=True) if t)) if tokens.sum() else 0
    if wanted > most:
        raise UserError(
            f"chunking.sequences: {chunking.sequences} sequences of {chunking.long_tokens} tokens need {wanted} "
            f"tokens, the corpus gives {most} with its domains in proportion ({most // payload} sequences); "
            "add text, ask for fewer sequences, or shorten chunking.long_tokens"
        )
    nothing = np.zeros(0, np.int64)  # of a corpus whose documents are empty
    drawn, cut, quotas = [nothing], [nothing], _in_proportion(tokens / max(tokens.sum(), 1), wanted)
    for number, quota in enumerate(quotas.tolist()):
        members = np.flatnonzero(domain == number)
        urn = np.repeat(members, copies[members])
        urn = urn[_spread(copies[members], rng)] if chunking.read == "enough" else rng.permutation(urn)
        before = np.cumsum(lengths[urn]) - lengths[urn]
        urn, before = urn[before < quota], before[before < quota]
        drawn.append(urn)
        cut.append(np.minimum(lengths[urn], quota - before))  # the last document gives what is left of the quota
    order = rng.permutation(sum(len(d) for d in drawn))
    segments = packed(np.concatenate(drawn)[order], np.concatenate(cut)[order], payload, separator)

    def shares(number: int) -> Shares:
        own, used, long = domain == number, domain[segments.document] == number, lengths > chunking.long_document_tokens
        used_long = used & long[segments.document]
        return {
            "tokens": int(lengths[own].sum()),
            "share": _ratio(lengths[own], lengths),
            "share_in_sequences": _ratio(segments.length[used], segments.length),
            "long_share": _ratio(lengths[own & long], lengths[own]),
            "long_share_in_sequences": _ratio(segments.length[used_long], segments.length[used]),
        }

    return segments, {name: shares(number) for number, name in enumerate(names)}


def _spread(copies: Ints, rng: np.random.Generator) -> Ints:
    """A random order of entries that are so many `copies` of each, each of n copies in an nth of the order of its own."""
    copy = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return np.argsort((copy + rng.random(len(copy))) / np.repeat(copies, copies))


def _in_proportion(shares: NDArray[np.float64], total: int) -> Ints:
    """Whole numbers in proportion to `shares`, whose sum is 1, that add up to `total`: each ends where its share does."""
    ends = np.floor(np.cumsum(shares) * total + 0.5).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0))


def _ratio(part: Ints, all_of_it: Ints) -> float:
    return round(float(part.sum() / all_of_it.sum()), 4) if all_of_it.sum() else 0.0


def fixed_shares(
    corpus: MixtureCorpus, part_of: Ints, lengths: Ints, chunking: Chunking, *, bos: bool, separator: int
) -> tuple[Segments, Ints, list[Shares]]:
    """Documents of `lengths` [documents] tokens, each cut as its part `part_of` [documents] says.

    Returns all sequences; which of them are taken, in which order: each part's share, drawn and shuffled by the seed,
    without `chunking.sequences` as many as the scarcest part allows; and by part its share, the sequences that it gives
    and those that are taken. Raises UserError, naming the part, where one has too few.
    """
    cut: list[Segments] = []
    for number, one in enumerate(corpus.parts):
        documents = np.flatnonzero(part_of == number)
        if one.packed:
            cut.append(packed(documents, lengths[documents], chunking.long_tokens - int(bos), separator))
        else:
            own = per_document(lengths[documents], chunking.long_tokens, bos=bos)
            cut.append(own._replace(document=documents[own.document]))
    available = np.array([own.sequences for own in cut])
    shares = np.array([one.share for one in corpus.parts])
    total = int((available / shares).min()) if chunking.sequences is None else chunking.sequences
    wanted = _in_proportion(shares, total)
    if chunking.sequences is None:
        wanted = np.minimum(wanted, available)
    for number, (has, needs) in enumerate(zip(available.tolist(), wanted.tolist(), strict=True)):
        if has < needs or not has:
            raise UserError(
                f"corpus.parts.{number}: gives {has} sequences of {chunking.long_tokens} tokens, its share of "
                f"{shares[number]:g} needs {max(needs, 1)}; add text, change the shares or ask for fewer sequences"
            )
    rng = np.random.default_rng(chunking.seed)
    firsts = np.cumsum(available) - available
    drawn = [
        rng.permutation(np.arange(first, first + has))[:count]
        for first, has, count in zip(firsts, available, wanted, strict=True)
    ]
    accounts = zip(corpus.parts, available.tolist(), wanted.tolist(), strict=True)
    return (
        Segments.one_after_another(cut),
        rng.permutation(np.concatenate(drawn)),
        [{"share": one.share, "available": has, "sequences": taken} for one, has, taken in accounts],
    )
