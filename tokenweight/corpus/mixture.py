"""Several corpora in fixed shares of the sequences: how each is cut, and which sequences are taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenweight.corpus.packing import Ints, Segments, packed, per_document
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Chunking, MixtureCorpus


@dataclass(frozen=True)
class Cut:
    """The sequences that all parts give, and of which part each is [sequences]."""

    segments: Segments
    part: Ints


def cut(corpus: MixtureCorpus, part_of: Ints, lengths: Ints, long_tokens: int, *, bos: bool, separator: int) -> Cut:
    """Cut documents of `lengths` [documents] tokens, each of part `part_of` [documents], as their part says."""
    pieces, parts, sequences = [], [], 0
    for number, part in enumerate(corpus.parts):
        documents = np.flatnonzero(part_of == number)
        if part.packed:
            own = packed(documents, lengths[documents], long_tokens - int(bos), separator)
        else:
            own = per_document(lengths[documents], long_tokens, bos=bos)
            own = Segments(own.sequence, own.position, documents[own.document], own.start, own.length)
        pieces.append(Segments(own.sequence + sequences, own.position, own.document, own.start, own.length))
        parts.append(np.full(own.sequences, number))
        sequences += own.sequences
    fields = ("sequence", "position", "document", "start", "length")
    together = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in fields)
    return Cut(Segments(*together), np.concatenate(parts))


def order(corpus: MixtureCorpus, part: Ints, chunking: Chunking) -> Ints:
    """Which sequences are taken, in which order: each part's share, drawn and shuffled by the seed.

    Without `chunking.sequences` as many as the scarcest part allows. `part` [sequences] as :class:`Cut` has it.
    Raises UserError, naming the part, where one has too few.
    """
    available = np.bincount(part, minlength=len(corpus.parts))
    shares = np.array([one.share for one in corpus.parts])
    total = int((available / shares).min()) if chunking.sequences is None else chunking.sequences
    wanted = np.floor(np.cumsum(shares) * total + 0.5).astype(np.int64)
    wanted = np.diff(wanted, prepend=0)
    if chunking.sequences is None:
        wanted = np.minimum(wanted, available)
    for number, (has, needs) in enumerate(zip(available.tolist(), wanted.tolist(), strict=True)):
        if has < needs or not has:
            raise UserError(
                f"corpus.parts.{number}: gives {has} sequences of {chunking.long_tokens} tokens, its share of "
                f"{shares[number]:g} needs {max(needs, 1)}; add text, change the shares or ask for fewer sequences"
            )
    rng = np.random.default_rng(chunking.seed)
    drawn = [rng.permutation(np.flatnonzero(part == number))[:count] for number, count in enumerate(wanted)]
    return rng.permutation(np.concatenate(drawn))


def account(corpus: MixtureCorpus, part: Ints, chosen: Ints) -> list[dict[str, float]]:
    """By part: its share, the sequences that it gives, and those that were taken (`chosen`, as `order` gives)."""
    taken = np.bincount(part[chosen], minlength=len(corpus.parts)).tolist()
    available = np.bincount(part, minlength=len(corpus.parts)).tolist()
    return [
        {"share": one.share, "available": has, "sequences": got}
        for one, has, got in zip(corpus.parts, available, taken, strict=True)
    ]
