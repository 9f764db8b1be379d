"""From text to token arrays: piecewise for long texts, with the novel's labels carried to token indices."""

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.documents import Document, Kind
from tokenweight.optional import by_parity
from tokenweight.recipes.schema import Parity

PIECE_CHARACTERS = 5_000
BATCH_PIECES = 64
Owner = TypeVar("Owner")
_CHARACTERS_PER_TOKEN = 6  # first guess of how much text holds the tokens wanted
_MARGIN_TOKENS = 64  # tokens near a cut in the text may differ from those of all of it
_CUT = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")  # a space between two words: no pre-tokenizer joins across it


@dataclass(frozen=True)
class Encoded:
    """A document's tokens, without BOS. All arrays have shape [tokens].

    `kinds` (Kind codes; every later mention of a value is SHORT_RECALL) and `distances` (for those, tokens back to
    the first token of the fact's last mention, else 0) are there where asked for.
    """

    tokens: NDArray[np.uint32]
    kinds: NDArray[np.uint8] | None = None
    distances: NDArray[np.uint32] | None = None


class Encoder:
    """A tokenizer as chunking needs it: ids without special tokens, and the BOS that sequences begin with.

    `skipped_tokens`: by `parity`, a BOS that the tokenizer does not add takes the place of each document's first token.
    """

    def __init__(self, tokenizer_dir: Path, parity: Parity = "paper") -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(tokenizer_dir))
        self.bos = by_parity(parity, sequence_bos)(self._tokenizer)
        self.skipped_tokens = int(self.bos is not None and sequence_bos(self._tokenizer) is None)
        self.eos: int | None = self._tokenizer.eos_token_id
        self.special = special_ids(self._tokenizer)
        # Not with sentencepiece's dummy prefix: there pieces have other ids than the whole text.
        probe = "The first word of a piece, 1,234 more words and A Name follow it's own rule here.\n\nNew lines too"
        whole, *pieces = ids_of(self._tokenizer, [probe, *split_pieces(probe, 20)])
        self._piecewise = list(whole) == [id for ids in pieces for id in ids]

    def encode(self, document: Document) -> Encoded:
        """Tokens of one document with their kinds; slower than tokens alone, for it takes their offsets."""
        pieces = [*self._pieces(document.text)]
        encoded = self._tokenizer.backend_tokenizer.encode_batch(pieces, add_special_tokens=False)
        begins = np.cumsum([0, *map(len, pieces)])
        spans = [
            np.asarray(encoding.offsets, np.int64).reshape(-1, 2) + begin
            for encoding, begin in zip(encoded, begins, strict=False)
        ]
        tokens = np.concatenate([np.asarray(encoding.ids, np.uint32) for encoding in encoded])
        return Encoded(tokens, *label(document, *np.concatenate(spans).T))

    def encode_all(self, documents: Iterable[Document]) -> Iterator[tuple[Document, Encoded]]:
        """Every document with its tokens alone: many at a time, on all cores."""
        pieces = ((document, piece) for document in documents for piece in self._pieces(document.text))
        for document, own in groupby(self._encoded(pieces), key=itemgetter(0)):
            yield document, Encoded(np.concatenate([ids for _, ids in own]))

    def stream(self, text: str) -> Iterator[NDArray[np.uint32]]:
        """Tokens of a text, without BOS, piece by piece, or at once where this tokenizer's pieces would differ from the whole."""
        return (ids for _, ids in self._encoded((None, piece) for piece in self._pieces(text)))

    def _encoded(self, pieces: Iterable[tuple[Owner, str]]) -> Iterator[tuple[Owner, NDArray[np.uint32]]]:
        """The tokens of each piece with whose it is, a batch of pieces at a time."""
        waiting, most = iter(pieces), BATCH_PIECES if self._piecewise else 1  # whole texts may be long
        while batch := list(islice(waiting, most)):
            all_ids = ids_of(self._tokenizer, [piece for _, piece in batch])
            yield from ((owner, np.asarray(ids, np.uint32)) for (owner, _), ids in zip(batch, all_ids, strict=True))

    def _pieces(self, text: str) -> Iterator[str]:
        return split_pieces(text) if self._piecewise else iter([text])


def ids_of(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Ids of whole texts, no special token added."""
    if not tokenizer.is_fast:
        ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return ids
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()  # what tokenizer.json may ask for; transformers ignores it too
    fast.no_padding()
    return [encoding.ids for encoding in fast.encode_batch_fast(texts, add_special_tokens=False)]


def special_ids(tokenizer: Any) -> list[int]:
    """Ids that a text gives where it spells a special token out, such as </s>: read as that token, as transformers does."""
    return [id for id in tokenizer.all_special_ids if id != tokenizer.unk_token_id]


def sequence_bos(tokenizer: Any) -> int | None:
    """The id with which a tokenizer begins a sequence; None where it adds no BOS."""
    first: int = tokenizer("a")["input_ids"][0]
    return first if first == tokenizer.bos_token_id else None


def encode_prefix(tokenizer: Any, text: str, n_tokens: int, **options: Any) -> Any:
    """What `tokenizer` gives for a prefix of a text, long enough that its first `n_tokens` are those of the whole text.

    Only as much is tokenised as is needed: a whole book takes some tokenizers quadratic time.
    """
    characters = n_tokens * _CHARACTERS_PER_TOKEN
    while True:
        encoded = tokenizer(text[:characters], verbose=False, **options)
        if characters >= len(text) or len(encoded["input_ids"]) >= n_tokens + _MARGIN_TOKENS:
            return encoded
        characters *= 2


def split_pieces(text: str, characters: int = PIECE_CHARACTERS) -> Iterator[str]:
    """Cut a text before single spaces between words, into pieces of about `characters` or more."""
    start = 0
    while match := _CUT.search(text, start + characters):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def label(
    document: Document, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Kinds and distances [tokens] from character spans: a token has the kind of the span that it overlaps.

    `starts`, `ends` [tokens]: characters of each token. Where a token overlaps two spans the first wins.
    """
    kinds = np.zeros(len(starts), np.uint8)
    distances = np.zeros(len(starts), np.uint32)
    last_mention: dict[Hashable, int] = {}  # fact -> index of the first token of its last mention
    first_tokens = np.searchsorted(ends, [span.start for span in document.spans], side="right")
    end_tokens = np.searchsorted(starts, [span.end for span in document.spans], side="left")
    for span, first, end in zip(document.spans, first_tokens.tolist(), end_tokens.tolist(), strict=True):
        if first < end and kinds[first]:
            first += 1
        kinds[first:end] = span.kind
        if span.fact is not None and first < end:
            if span.kind is Kind.SHORT_RECALL:
                distances[first:end] = np.arange(first, end) - last_mention.get(span.fact, first)
            last_mention[span.fact] = first
    return kinds, distances


def resolve_kinds(
    kinds: NDArray[np.uint8], distances: NDArray[np.uint32], positions: NDArray[np.int64], short_tokens: int
) -> NDArray[np.uint8]:
    """Kinds as a sequence sees them, any one shape for all arrays.

    `positions`: how many tokens of the same document precede the token in its sequence. A recall whose source lies
    before the sequence is an INTRODUCTION there; one farther back than `short_tokens` is a LONG_RECALL.
    """
    recall = kinds == Kind.SHORT_RECALL
    resolved = kinds.copy()
    resolved[recall & (distances > short_tokens)] = Kind.LONG_RECALL
    resolved[recall & (distances > positions)] = Kind.INTRODUCTION
    return resolved
