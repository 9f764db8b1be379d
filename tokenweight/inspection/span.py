"""Which tokens the LaTeX table shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from tokenweight.errors import UserError
from tokenweight.inspection.tokens import Tokens

if TYPE_CHECKING:
    from tokenweight.inspection.compute import FloatArray

SPAN_TOKENS = 13  # as many as Table 1 shows
MARGIN_TOKENS = 5  # on either side of what --find finds
MOST_TOKENS = 104  # eight rows of 13: what a page holds


def parse_span(text: str) -> range:
    """START:END as half-open token indices; UserError for anything else, before the model is loaded."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if not match or int(match[1]) >= int(match[2]):
        raise UserError(f"--span {text}: not START:END with START < END; write for example 120:133")
    span = range(int(match[1]), int(match[2]))
    if len(span) > MOST_TOKENS:
        raise UserError(f"--span {text}: {len(span)} tokens; a table holds at most {MOST_TOKENS}, take fewer")
    return span


def chosen_span(tokens: Tokens, span: range | None, find: str | None) -> range | None:
    """The tokens of --span or around the first place of --find; None where neither is given."""
    n_tokens = len(tokens.ids)
    if span is not None:
        if span.stop > n_tokens:
            raise UserError(f"--span {span.start}:{span.stop}: the text has tokens 0 to {n_tokens - 1}; lower it")
        return span
    if find is None:
        return None
    first, last = _place(tokens, find)
    return range(max(0, first - MARGIN_TOKENS), min(n_tokens, last + 1 + MARGIN_TOKENS))


def highest_span(weights: FloatArray) -> range:
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


def _place(tokens: Tokens, find: str) -> tuple[int, int]:
    place = place_of(tokens.texts, find)
    if place is None:
        raise UserError(f"--find {find!r}: not in the first {len(tokens.ids)} tokens of the text; look for another")
    first, last = place
    if last - first >= MOST_TOKENS - 2 * MARGIN_TOKENS:
        raise UserError(f"--find: the string has {last - first + 1} tokens; too many for a table, take a shorter one")
    return first, last
