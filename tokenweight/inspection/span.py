"""Which tokens the LaTeX table shows."""

from __future__ import annotations

import re

from tokenweight.corpus.token_texts import MOST_TOKENS, Tokens, place_of
from tokenweight.errors import UserError

MARGIN_TOKENS = 5  # on either side of what --find finds


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


def _place(tokens: Tokens, find: str) -> tuple[int, int]:
    place = place_of(tokens.texts, find)
    if place is None:
        raise UserError(f"--find {find!r}: not in the first {len(tokens.ids)} tokens of the text; look for another")
    first, last = place
    if last - first >= MOST_TOKENS - 2 * MARGIN_TOKENS:
        raise UserError(f"--find: the string has {last - first + 1} tokens; too many for a table, take a shorter one")
    return first, last
