"""Mixtures: documents of one corpus drawn by their lengths (LCDE), and several corpora in fixed shares of the sequences."""

from __future__ import annotations

import numpy as np

from tokenweight.corpus.packing import Ints, Segments, packed, per_document
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Chunking, MixtureCorpus

Shares = dict[str, float]


def lcde(
    lengths: Ints, domains: list[str], chunking: Chunking, *, bos: bool, separator: int
) -> tuple[Segments, dict[str, Shares]]:
    """Long-Context Data Engineering (Fu et al. 2024): more long documents, the same domains, packed at random.

    Documents have `lengths` [documents] tokens and are of `domains` [documents]. Within each domain, those longer than
    `long_document_tokens` are drawn `long_document_factor` times as often as the others; each domain keeps its share of
    all tokens; what is drawn is put end to end in random order, EOS between, and cut into sequences. As many tokens are
    drawn as the corpus has, or as `chunking.sequences` needs. Returns the sequences and each domain's shares of tokens
    before and after. Raises UserError where the corpus has not enough with its domains in proportion.
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
    wanted = np.diff(np.floor(np.cumsum(shares) * total + 0.5).astype(np.int64), prepend=0)
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
