"""A text as tokens that can be shown: the characters of each token, and which tokens a table shows (Table 1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.encoding import encode_prefix
from tokenweight.corpus.files import decode
from tokenweight.errors import UserError

SPAN_TOKENS = 13  # as many as Table 1 shows
MOST_TOKENS = 104  # eight rows of 13: what a page holds


@dataclass(frozen=True)
class Tokens:
    """The first N tokens of a text; every list has length N.

    `texts` concatenated are the text that the tokens cover. A character that is split over several tokens belongs to
    the first of them, the others have the empty text; so does a token that the tokenizer adds by itself (BOS), whose
    name is in `added`, by index. `whole_text` tells whether nothing of the text was left out.
    """

    ids: list[int]
    texts: list[str]
    added: dict[int, str]
    whole_text: bool


def text_of(path: Path, what: str) -> str:
    """The text of a file, as a corpus would have it. UserError: it cannot be read; `what` is what the user calls it."""
    try:
        return decode(path, path.read_bytes())
    except OSError as error:
        raise UserError(f"{what} {path}: cannot be read ({error.strerror}); give a text file") from None


def first_tokens_with_text(tokenizer: Any, text: str, n_tokens: int) -> Tokens:
    """The first `n_tokens` of a text with the tokenizer's own special tokens (all, where there are fewer).

    Raises UserError where the tokenizer cannot say which characters a token covers.
    """
    if not tokenizer.is_fast:
        raise UserError("CHECKPOINT: its tokenizer gives no character offsets; add a tokenizer.json to the checkpoint")
    encoded = encode_prefix(tokenizer, text, n_tokens, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids = encoded["input_ids"][:n_tokens]
    special = encoded["special_tokens_mask"][:n_tokens]
    whole_text = len(encoded["input_ids"]) <= n_tokens
    texts = cut_at_offsets(text, encoded["offset_mapping"][:n_tokens])
    if whole_text:
        last = max((i for i, is_added in enumerate(special) if not is_added), default=None)
        if last is not None:
            texts[last] += text[sum(map(len, texts)) :]  # what the tokenizer drops at the end (some strip spaces)
    names = tokenizer.convert_ids_to_tokens(ids)
    return Tokens(ids, texts, {i: names[i] for i, is_added in enumerate(special) if is_added}, whole_text)


def cut_at_offsets(text: str, offsets: Iterable[tuple[int, int]]) -> list[str]:
    """The text of each token, from the character offsets (start, end) of a tokenizer.

    Token i has what lies between the furthest end so far and its own: so characters between two tokens (spaces that
    a tokenizer leaves out of its offsets) go to the later one, and a character shared by several to the first.
    """
    texts, done = [], 0
    for _, end in offsets:
        texts.append(text[done:end])
        done = max(done, end)
    return texts


def highest_span(weights: NDArray[np.floating]) -> range:
    """The tokens around the highest of the M weights."""
    return span_around(int(np.argmax(weights)) + 1, len(weights) + 1)


def span_around(token: int, n_tokens: int) -> range:
    """As many tokens as Table 1 shows, with `token` in their middle where there are enough on both sides."""
    start = max(0, min(token - SPAN_TOKENS // 2, n_tokens - SPAN_TOKENS))
    return range(start, min(n_tokens, start + SPAN_TOKENS))


def place_of(texts: Sequence[str], find: str) -> tuple[int, int] | None:
    """First and last of the tokens' `texts` that hold a character of the first occurrence of `find`; None without one."""
    position = "".join(texts).find(find)
    if position < 0 or not find:
        return None
    ends = list(accumulate(map(len, texts)))
    first = next(i for i, end in enumerate(ends) if end > position)
    last = next(i for i, end in enumerate(ends) if end >= position + len(find))
    return first, last
