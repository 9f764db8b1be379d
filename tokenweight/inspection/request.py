"""What a user asks of `inspect`, checked as far as it can be before a model is loaded."""

import re

from tokenweight.corpus.token_texts import MOST_TOKENS, Tokens, place_of
from tokenweight.errors import UserError
from tokenweight.recipes.options import WeightingOptions

MARGIN_TOKENS = 5  # on either side of what --find finds


class Options(WeightingOptions):
    """How to compare contexts, and which tokens the table shows; None: the default that fits the checkpoint."""

    span: str | None = None
    find: str | None = None


def chosen_span(tokens: Tokens, options: Options) -> range | None:
    """The tokens of --span, half-open, or around the first place of --find; None where neither is given."""
    n_tokens, text, find = len(tokens.ids), options.span, options.find
    if text is not None:
        if find is not None:
            raise UserError("--span and --find: both choose the table's tokens; give one of them")
        match = re.fullmatch(r"(\d+):(\d+)", text.strip())
        if not match or int(match[1]) >= int(match[2]):
            raise UserError(f"--span {text}: not START:END with START < END; write for example 120:133")
        span = range(int(match[1]), int(match[2]))
        if len(span) > MOST_TOKENS:
            raise UserError(f"--span {text}: {len(span)} tokens; a table has at most {MOST_TOKENS}, give fewer")
        if span.stop > n_tokens:
            raise UserError(f"--span {text}: the text has tokens 0 to {n_tokens - 1}; lower it")
        return span
    if find is None:
        return None
    if (place := place_of(tokens.texts, find)) is None:
        raise UserError(f"--find {find!r}: not in the first {n_tokens} tokens of the text; give another string")
    first, last = place
    if last - first >= MOST_TOKENS - 2 * MARGIN_TOKENS:
        raise UserError(f"--find: the string has {last - first + 1} tokens; too many for a table, give a shorter one")
    return range(max(0, first - MARGIN_TOKENS), min(n_tokens, last + 1 + MARGIN_TOKENS))
