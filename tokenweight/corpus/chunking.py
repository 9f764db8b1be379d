"""From documents to training sequences on disk, with an account of every token (Section 4, Datasets).

Documents are tokenised one after another into a stream on disk; a plan (per document, LCDE, or a mixture of corpora)
says which pieces make which sequence; the sequences are then written in seeded random order. Memory holds one long
document at a time, or some short ones.
"""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus import packing
from tokenweight.corpus.documents import Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds
from tokenweight.corpus.packing import Ints, Segments
from tokenweight.corpus.sources import check, document_count, documents, left_out
from tokenweight.corpus.stages import Chunk
from tokenweight.corpus.token_rows import chunk_rows
from tokenweight.errors import UserError
from tokenweight.optional import by_parity
from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Chunking, Execution, HubCorpus, MixtureCorpus, NovelCorpus

# Arrays of the novel; others have tokens alone.
LABELLED = {"tokens": np.uint32, "kinds": np.uint8, "distances": np.uint32}


class _Read(NamedTuple):
    """A document that was tokenised, and whether the streams have it.

    All are kept in memory, about 270 bytes each, for the account, the index and the mixture.
    """

    id: str
    domain: str
    part: int  # of a mixture; else 0
    tokens: int
    special: int  # tokens that it spells out
    kept: bool


def chunk(stage: Chunk, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Write tokens.npy uint32 [sequences, long_tokens], sequences.parquet, accounting.json, which it returns.

    For the novel also kinds.npy (Kind codes) and distances.npy (of recalls: tokens back to the fact's last mention in
    the sequence, else 0); `short_tokens` decides which recalls are long-range. `parity` decides how documents are cut.
    UserError where the corpus cannot be read, or has no sequence or fewer than `chunking.sequences`.
    """
    import pyarrow as pa  # starts a thread: not in a process that is forked later
    import pyarrow.parquet as pq

    corpus, chunking = stage.corpus, stage.chunking
    if chunking.mixture == "as_is":
        return chunk_rows(stage, out_dir, progress)
    if isinstance(corpus, MixtureCorpus) and chunking.mixture == "lcde":
        raise UserError("chunking.mixture: lcde draws from a single corpus; give that in place of corpus.parts")
    check(corpus)
    not_read = left_out(corpus)
    encoder = Encoder(inputs["tokenizer"], stage.parity)
    streams = out_dir / "streams"
    streams.mkdir(parents=True, exist_ok=True)
    try:
        read = _tokenise(stage, encoder, streams, progress)
        kept = [document for document in read if document.kept]
        lengths = np.array([document.tokens for document in kept], np.int64)
        segments, order, extra = _plan(stage, read, lengths, encoder)
        chosen = segments.select(order)
        counts = _write_sequences(stage, out_dir, lengths, chosen, encoder, progress)
    finally:
        shutil.rmtree(streams)
    if isinstance(corpus, NovelCorpus):
        extra["kinds"] = {kind.name.lower(): int(counts[kind]) for kind in Kind}
    # One row per piece of a document (per-document chunking: one per sequence).
    index = {
        "sequence_id": chosen.sequence,
        "document_id": pa.array([document.id for document in kept], pa.string()).take(pa.array(chosen.document)),
        "start_token": chosen.start,
        "position": chosen.position,
        "tokens": chosen.length,
    }
    pq.write_table(pa.table(index), out_dir / "sequences.parquet")  # type: ignore[no-untyped-call]
    if (enough := _enough(stage, encoder)) is not None:
        extra["stopped_reading"] = sum(document.tokens for document in read) >= enough
    accounting = _account(chunking, read, lengths, segments, chosen, encoder.bos is not None) | extra
    (out_dir / "accounting.json").write_text(json.dumps(accounting, indent=2) + "\n")
    facts = accounting | ({"files_left_out": not_read} if not_read else {})
    remarks = []
    if accounting.get("stopped_reading"):
        remarks = [f"the first {len(read)} documents are read, {accounting['tokens']} tokens: enough to draw from"]
    if special := [document.special for document in read if document.special]:
        told = f"{sum(special)} special tokens are spelled out in {len(special)} of {len(read)} documents, and read as such"
        remarks.append(told)
    return facts | ({"remarks": remarks} if remarks else {})


def _enough(stage: Chunk, encoder: Encoder) -> int | None:
    """After how many tokens reading stops (:class:`~tokenweight.recipes.schema.Chunking`); None: not before the end."""
    chunking = stage.chunking
    if chunking.read == "all" or chunking.sequences is None or not isinstance(stage.corpus, HubCorpus):
        return None
    return chunking.long_document_factor * chunking.sequences * (chunking.long_tokens - int(encoder.bos is not None))


def _tokenise(stage: Chunk, encoder: Encoder, streams: Path, progress: Progress) -> list[_Read]:
    """Append every usable document's tokens (and labels) to the streams; all documents read, with which were `kept`."""
    corpus, chunking = stage.corpus, stage.chunking
    read: list[_Read] = []
    total = document_count(corpus, "train")
    is_novel = isinstance(corpus, NovelCorpus)
    payload = chunking.long_tokens - int(encoder.bos is not None)
    tokens, enough = 0, _enough(stage, encoder)
    parts = [(corpus, chunking.mixture == "lcde")]  # and whether a document of any length can be used
    if isinstance(corpus, MixtureCorpus):
        parts = [(part.corpus, part.packed) for part in corpus.parts]
    with ExitStack() as stack:
        files = {
            name: stack.enter_context((streams / name).open("wb")) for name in LABELLED if is_novel or name == "tokens"
        }
        for number, (part, any_length) in enumerate(parts):
            texts = documents(part, "train")
            labelled = ((document, encoder.encode(document)) for document in texts) if is_novel else None
            for document, encoded in labelled or encoder.encode_all(texts):
                length = len(encoded.tokens)
                keep = length >= (1 if any_length else payload)
                special = int(np.isin(encoded.tokens, encoder.special).sum())
                read.append(_Read(document.id, document.domain, number, length, special, keep))
                for name, file in files.items() if keep else ():
                    file.write(getattr(encoded, name).tobytes())
                tokens += length
                if enough is None:
                    progress(len(read), total, "documents")
                else:
                    progress(min(tokens, enough), enough, "tokens")
                    if tokens >= enough:
                        return read
    return read


def _plan(stage: Chunk, read: list[_Read], lengths: Ints, encoder: Encoder) -> tuple[Segments, Ints, dict[str, Any]]:
    """All sequences that the documents give; those that are taken, in order; and a mixture's own account."""
    corpus, chunking = stage.corpus, stage.chunking
    bos, separator = encoder.bos is not None, int(encoder.eos is not None)
    if isinstance(corpus, MixtureCorpus):
        of_part = np.array([document.part for document in read if document.kept])
        segments, order, parts = packing.fixed_shares(corpus, of_part, lengths, chunking, bos=bos, separator=separator)
        return segments, order, {"parts": parts}
    extra: dict[str, Any] = {}
    if chunking.mixture == "lcde":
        domains = [document.domain for document in read if document.kept]
        segments, extra["domains"] = packing.lcde(lengths, domains, chunking, bos=bos, separator=separator)
    else:
        cut_documents = by_parity(stage.parity, packing.per_document)
        segments = cut_documents(lengths, chunking.long_tokens, bos=bos, skipped=encoder.skipped_tokens)
    # A seeded shuffle of all sequences, cut to `chunking.sequences`.
    available = segments.sequences
    if available == 0:
        length, id = max(((document.tokens, document.id) for document in read), default=(0, "none"))
        raise UserError(
            f"corpus: no document reaches {chunking.long_tokens} tokens (longest: {id}, {length} tokens); "
            "give longer documents or shorter sequences (chunking.long_tokens; of score --long-tokens)"
        )
    wanted = available if chunking.sequences is None else chunking.sequences
    if wanted > available:
        raise UserError(
            f"chunking.sequences: {wanted} sequences of {chunking.long_tokens} tokens are needed, the corpus gives "
            f"{available}; add text, train for fewer steps or with fewer sequences a step, or shorten "
            "chunking.long_tokens"
        )
    return segments, np.random.default_rng(chunking.seed).permutation(available)[:wanted], extra


def _write_sequences(
    stage: Chunk, out_dir: Path, lengths: Ints, segments: Segments, encoder: Encoder, progress: Progress
) -> Ints:
    """An array for each stream, in training order; returns how many tokens are of each kind."""
    shape = (segments.sequences, stage.chunking.long_tokens)
    offsets = np.cumsum(lengths) - lengths
    bounds = np.searchsorted(segments.sequence, np.arange(shape[0] + 1))
    streams: dict[str, NDArray[Any]] = {}
    arrays: dict[str, np.memmap[Any, Any]] = {}
    for file in (out_dir / "streams").iterdir():
        streams[file.name] = np.memmap(file, LABELLED[file.name], "r")
        array = np.lib.format.open_memmap(out_dir / f"{file.name}.npy", "w+", LABELLED[file.name], shape)  # type: ignore[no-untyped-call]
        arrays[file.name] = array
    counts = np.zeros(len(Kind), np.int64)
    for row in range(shape[0]):
        lines = {name: array[row] for name, array in arrays.items()}
        lines["tokens"][:] = encoder.eos or 0
        if encoder.bos is not None:
            lines["tokens"][0] = encoder.bos
        for i in range(bounds[row], bounds[row + 1]):
            begin = offsets[segments.document[i]] + segments.start[i]
            first = int(encoder.bos is not None) + segments.position[i]
            place = slice(first, first + segments.length[i])
            for name, stream in streams.items():
                lines[name][place] = stream[begin : begin + segments.length[i]]
            if "kinds" in lines:
                kinds, distances = lines["kinds"][place], lines["distances"][place]
                positions = np.arange(segments.length[i])
                kinds[:] = resolve_kinds(kinds, distances, positions, stage.short_tokens or shape[1])
                distances[distances > positions] = 0
        if "kinds" in lines:
            counts += np.bincount(lines["kinds"], minlength=len(Kind))
        progress(row + 1, shape[0], "sequences")
    for array in arrays.values():
        array.flush()
    return counts


def _account(
    chunking: Chunking, read: list[_Read], lengths: Ints, planned: Segments, chosen: Segments, bos: bool
) -> dict[str, Any]:
    """Every token of the corpus: kept (in some sequence) or dropped, by reason."""
    kept, in_plan, usable = chosen.distinct_tokens(lengths), planned.distinct_tokens(lengths), int(lengths.sum())
    tokens = sum(document.tokens for document in read)
    left = "not_drawn" if chunking.mixture == "lcde" else "remainder"
    dropped = {"document_too_short": tokens - usable, left: usable - in_plan, "beyond_sequences": in_plan - kept}
    return {
        "mixture": chunking.mixture,
        "long_tokens": chunking.long_tokens,
        "bos": bos,
        "crosses_documents": chunking.mixture == "lcde",
        "sequences": chosen.sequences,
        "documents": len(read),
        "documents_too_short": len(read) - len(lengths),
        "documents_kept": len(np.unique(chosen.document)),
        "tokens": tokens,
        "kept": kept,
        "dropped": dropped,
        "repeated": int(chosen.length.sum()) - kept,
    }
