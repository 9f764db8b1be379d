"""Long-Context Data Engineering (Fu et al. 2024): more long documents, the same domains, packed at random.

Within each domain, documents longer than `long_document_tokens` are drawn `long_document_factor` times as often as
the others; each domain keeps its share of all tokens; what is drawn is put end to end in random order, EOS between,
and cut into sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenweight.corpus.packing import Ints, Segments, packed
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Chunking


@dataclass(frozen=True)
class Mixture:
    """The sequences and, for the accounting, each domain's shares of tokens before and after."""

    segments: Segments
    domains: dict[str, dict[str, float]]


def mix(lengths: Ints, domains: list[str], chunking: Chunking, *, bos: bool, separator: int) -> Mixture:
    """Draw and pack documents of `lengths` [documents] tokens in `domains` [documents].

    As many tokens are drawn as the corpus has, or as `chunking.sequences` needs. Raises UserError where the corpus
    has not enough for that with its domains in proportion.
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
    drawn, cut = [], []
    for number in range(len(names)):
        members = np.flatnonzero(domain == number)
        urn = rng.permutation(np.repeat(members, copies[members]))
        quota = round(wanted * tokens[number] / tokens.sum()) if tokens[number] else 0
        before = np.cumsum(lengths[urn]) - lengths[urn]
        urn, before = urn[before < quota], before[before < quota]
        drawn.append(urn)
        cut.append(np.minimum(lengths[urn], quota - before))  # the last document gives what is left of the quota
    order = rng.permutation(sum(len(d) for d in drawn))
    pieces, sizes = np.concatenate(drawn)[order], np.concatenate(cut)[order]
    segments = packed(pieces, sizes, payload, separator)
    return Mixture(segments, _shares(names, domain, lengths, chunking.long_document_tokens, segments))


def _shares(
    names: list[str], domain: Ints, lengths: Ints, long_document_tokens: int, segments: Segments
) -> dict[str, dict[str, float]]:
    used_by = domain[segments.document]
    is_long = lengths > long_document_tokens
    shares = {}
    for number, name in enumerate(names):
        own, used = domain == number, used_by == number
        shares[name] = {
            "tokens": int(lengths[own].sum()),
            "share": _ratio(lengths[own].sum(), lengths.sum()),
            "share_in_sequences": _ratio(segments.length[used].sum(), segments.length.sum()),
            "long_share": _ratio(lengths[own & is_long].sum(), lengths[own].sum()),
            "long_share_in_sequences": _ratio(
                segments.length[used & is_long[segments.document]].sum(), segments.length[used].sum()
            ),
        }
    return shares


def _ratio(part: float, whole: float) -> float:
    return round(float(part / whole), 4) if whole else 0.0
