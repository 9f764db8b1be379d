"""From documents to training sequences on disk, with an account of every token (Section 4, Datasets).

Documents are tokenised one after another into a stream on disk; a plan (per document, LCDE, or a mixture of corpora)
says which pieces make which sequence; the sequences are then written in seeded random order. Memory holds one long
document at a time, or some short ones.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus import lcde, mixture, packing
from tokenweight.corpus.documents import Kind
from tokenweight.corpus.encoding import Encoded, Encoder, resolve_kinds
from tokenweight.corpus.packing import Segments
from tokenweight.corpus.sources import check, document_count, documents
from tokenweight.errors import UserError
from tokenweight.optional import by_parity
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Chunking, Corpus, MixtureCorpus, NovelCorpus, Parity

STREAMS = {"tokens": np.uint32, "kinds": np.uint8, "distances": np.uint32}


@dataclass
class _Read:
    """What was tokenised: documents kept in the streams, and totals of all."""

    ids: list[str] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)  # of a mixture; else 0
    documents: int = 0
    tokens: int = 0
    too_short_documents: int = 0
    too_short_tokens: int = 0
    longest: tuple[int, str] = (0, "")


def chunk(
    corpus: Corpus,
    chunking: Chunking,
    tokenizer_dir: Path,
    out_dir: Path,
    *,
    short_tokens: int,
    progress: Progress,
    parity: Parity = "paper",
) -> dict[str, Any]:
    """Write tokens.npy uint32 [sequences, long_tokens], sequences.parquet, accounting.json.

    For the novel also kinds.npy (Kind codes) and distances.npy (of recalls: tokens back to the fact's last mention in
    the sequence, else 0); `short_tokens` decides which recalls are long-range. `parity` decides
    how documents are cut. Returns the accounting. Raises UserError where
    the corpus cannot be read, has no sequence at all, or fewer than `chunking.sequences`.
    """
    if isinstance(corpus, MixtureCorpus) and chunking.mixture == "lcde":
        raise UserError("chunking.mixture: lcde draws from one corpus; give one in place of corpus.parts")
    check(corpus)
    encoder = Encoder(tokenizer_dir, parity)
    with_kinds = isinstance(corpus, NovelCorpus)
    out_dir.mkdir(parents=True, exist_ok=True)
    try:
        read = _tokenise(corpus, chunking, encoder, out_dir, progress)
        lengths = np.asarray(read.lengths, np.int64)
        bos = encoder.bos is not None
        extra: dict[str, Any] = {}
        order: NDArray[np.int64] | None = None  # of sequences; a mixture's own
        if chunking.mixture == "lcde":
            drawn = lcde.mix(lengths, read.domains, chunking, bos=bos, separator=int(encoder.eos is not None))
            segments, extra["domains"] = drawn.segments, drawn.domains
        elif isinstance(corpus, MixtureCorpus):
            separator, part_of = int(encoder.eos is not None), np.asarray(read.parts, np.int64)
            cut = mixture.cut(corpus, part_of, lengths, chunking.long_tokens, bos=bos, separator=separator)
            segments, order = cut.segments, mixture.order(corpus, cut.part, chunking)
            extra["parts"] = mixture.account(corpus, cut.part, order)
        else:
            cut_documents = by_parity(parity, packing.per_document)
            segments = cut_documents(lengths, chunking.long_tokens, bos=bos, skipped=encoder.skipped_tokens)
        if order is None:
            order = _order(segments.sequences, chunking, read)
        chosen = segments.select(order)
        kinds = _write_sequences(out_dir, read, chosen, chunking, encoder, with_kinds, short_tokens, progress)
        if kinds is not None:
            extra["kinds"] = {kind.name.lower(): int(kinds[kind]) for kind in Kind}
        _write_index(out_dir, read, chosen)
        accounting = _account(chunking, read, lengths, segments, chosen, bos) | extra
        (out_dir / "accounting.json").write_text(json.dumps(accounting, indent=2) + "\n")
        return accounting
    finally:
        for name in STREAMS:
            _stream_path(out_dir, name).unlink(missing_ok=True)


def _tokenise(corpus: Corpus, chunking: Chunking, encoder: Encoder, out_dir: Path, progress: Progress) -> _Read:
    """Append every usable document's tokens (and labels) to the streams."""
    read = _Read()
    total = document_count(corpus, "train")
    wanted = STREAMS if isinstance(corpus, NovelCorpus) else {"tokens": np.uint32}
    payload = chunking.long_tokens - int(encoder.bos is not None)
    with ExitStack() as stack:
        streams = {name: stack.enter_context(_stream_path(out_dir, name).open("wb")) for name in wanted}
        for number, (part, any_length) in enumerate(_parts(corpus, chunking)):
            for document, encoded in encoder.encode_all(documents(part, "train", labelled="kinds" in wanted)):
                length = len(encoded.tokens)
                read.documents += 1
                read.tokens += length
                read.longest = max(read.longest, (length, document.id))
                if length < (1 if any_length else payload):
                    read.too_short_documents += 1
                    read.too_short_tokens += length
                else:
                    read.ids.append(document.id)
                    read.domains.append(document.domain)
                    read.lengths.append(length)
                    read.parts.append(number)
                    for name, file in streams.items():
                        file.write(_array(encoded, name).tobytes())
                progress(read.documents, total, "documents")
    return read


def _parts(corpus: Corpus, chunking: Chunking) -> list[tuple[Corpus, bool]]:
    """The corpora that are read one after the other, and whether a document of any length can be used."""
    if isinstance(corpus, MixtureCorpus):
        return [(part.corpus, part.packed) for part in corpus.parts]
    return [(corpus, chunking.mixture == "lcde")]


def _array(encoded: Encoded, name: str) -> NDArray[Any]:
    array: NDArray[Any] | None = getattr(encoded, name)
    return np.zeros(len(encoded.tokens), STREAMS[name]) if array is None else array


def _order(available: int, chunking: Chunking, read: _Read) -> NDArray[np.int64]:
    """A seeded shuffle of all sequences, cut to `chunking.sequences`."""
    if available == 0:
        length, id = read.longest
        raise UserError(
            f"corpus: no document reaches {chunking.long_tokens} tokens (longest: {id or 'none'}, {length} tokens); "
            "give longer documents or shorten chunking.long_tokens"
        )
    wanted = available if chunking.sequences is None else chunking.sequences
    if wanted > available:
        raise UserError(
            f"chunking.sequences: {wanted} sequences of {chunking.long_tokens} tokens are wanted, the corpus gives "
            f"{available}; add text, train for fewer steps or with fewer sequences a step, or shorten "
            "chunking.long_tokens"
        )
    return np.random.default_rng(chunking.seed).permutation(available)[:wanted]


def _write_sequences(
    out_dir: Path,
    read: _Read,
    segments: Segments,
    chunking: Chunking,
    encoder: Encoder,
    with_kinds: bool,
    short_tokens: int,
    progress: Progress,
) -> NDArray[np.int64] | None:
    """tokens.npy, kinds.npy and distances.npy in training order; returns how many tokens are of each kind."""
    shape = (segments.sequences, chunking.long_tokens)
    first = int(encoder.bos is not None)
    offsets = np.cumsum(read.lengths) - read.lengths
    bounds = np.searchsorted(segments.sequence, np.arange(shape[0] + 1))
    wanted = STREAMS if with_kinds else {"tokens": np.uint32}
    streams = {name: np.memmap(_stream_path(out_dir, name), dtype, "r") for name, dtype in wanted.items()}
    arrays = {name: _open_array(out_dir / f"{name}.npy", dtype, shape) for name, dtype in wanted.items()}
    counts = np.zeros(len(Kind), np.int64)
    for row in range(shape[0]):
        lines = {name: np.zeros(shape[1], dtype) for name, dtype in wanted.items()}
        lines["tokens"][:] = encoder.eos if encoder.eos is not None else 0
        if encoder.bos is not None:
            lines["tokens"][0] = encoder.bos
        for i in range(bounds[row], bounds[row + 1]):
            begin = offsets[segments.document[i]] + segments.start[i]
            source = slice(begin, begin + segments.length[i])
            place = slice(first + segments.position[i], first + segments.position[i] + segments.length[i])
            for name, stream in streams.items():
                lines[name][place] = stream[source]
            if with_kinds:
                kinds, distances = lines["kinds"][place], lines["distances"][place]
                positions = np.arange(segments.length[i])
                lines["kinds"][place] = resolve_kinds(kinds, distances, positions, short_tokens)
                lines["distances"][place] = np.where(distances > positions, 0, distances)
        for name, line in lines.items():
            arrays[name][row] = line
        if with_kinds:
            counts += np.bincount(lines["kinds"], minlength=len(Kind))
        progress(row + 1, shape[0], "sequences")
    for array in arrays.values():
        array.flush()
    return counts if with_kinds else None


def _open_array(path: Path, dtype: Any, shape: tuple[int, int]) -> np.memmap[Any, Any]:
    return np.lib.format.open_memmap(path, "w+", dtype, shape)  # type: ignore[no-untyped-call, no-any-return]


def _write_index(out_dir: Path, read: _Read, segments: Segments) -> None:
    """sequences.parquet: one row per piece of a document (per-document chunking: one per sequence)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "sequence_id": segments.sequence,
            "document_id": pa.array(read.ids).take(pa.array(segments.document)),
            "start_token": segments.start,
            "position": segments.position,
            "tokens": segments.length,
        }
    )
    pq.write_table(table, out_dir / "sequences.parquet")  # type: ignore[no-untyped-call]


def _account(
    chunking: Chunking,
    read: _Read,
    lengths: NDArray[np.int64],
    planned: Segments,
    chosen: Segments,
    bos: bool,
) -> dict[str, Any]:
    """Every token of the corpus: kept (in some sequence) or dropped, by reason."""
    kept = chosen.distinct_tokens(lengths)
    in_plan = planned.distinct_tokens(lengths)
    left = "not_drawn" if chunking.mixture == "lcde" else "remainder"
    dropped = {
        "document_too_short": read.too_short_tokens,
        left: int(lengths.sum()) - in_plan,
        "beyond_sequences": in_plan - kept,
    }
    return {
        "mixture": chunking.mixture,
        "long_tokens": chunking.long_tokens,
        "bos": bos,
        "crosses_documents": chunking.mixture == "lcde",
        "sequences": chosen.sequences,
        "documents": read.documents,
        "documents_too_short": read.too_short_documents,
        "documents_kept": len(np.unique(chosen.document)),
        "tokens": read.tokens,
        "kept": kept,
        "dropped": dropped,
        "repeated": int(chosen.length.sum()) - kept,
    }


def _stream_path(out_dir: Path, name: str) -> Path:
    return out_dir / f"stream-{name}.part"
