"""A span of tokens as a LaTeX table in the form of Table 1 (Case Study)."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

from tokenweight.inspection.report import PALETTE, in_words, weight_level
from tokenweight.latex import environment, printed

TOKENS_PER_BLOCK = 13  # columns of Table 1

_MARKS = {"\n": r"$\hookleftarrow$", "\t": r"$\rightarrow$", "'": r"\textquotesingle{}", "’": "’"}
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=,)(?=,)")  # -- would print as a dash, ,, as a quotation mark
_REST_OF_A_CHARACTER = r"$\triangleleft$"


def render(content: dict[str, Any], span: range) -> str:
    """The table of the tokens in `span` (of an inspection's report): a document by itself, or to `\\input` in one."""
    columns = [_column(content["tokens"], index) for index in span]
    texts = [content["tokens"]["text"][index] for index in span]
    blocks = [slice(first, first + TOKENS_PER_BLOCK) for first in range(0, len(span), TOKENS_PER_BLOCK)]
    templates = environment(Path(__file__).parent)
    templates.filters["tex"] = escape
    return templates.get_template("span.tex.jinja").render(
        blocks=[{"columns": columns[block], "quote": escape("".join(texts[block]).strip(" "))} for block in blocks],
        palette=PALETTE["light"],
        first=span.start,
        last=span.stop - 1,
        content=content,
        **in_words(content),
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, line breaks and tabs as marks; other characters as their code point."""
    characters = (
        _MARKS.get(character) or printed(character) or rf"{{\scriptsize U+{ord(character):04X}}}"
        for character in unicodedata.normalize("NFC", text)
    )
    return _LIGATURES.sub("{}", "".join(characters))


def token(text: str) -> str:
    """A token for a cell: without the space that begins it, as in Table 1, unless there is nothing else."""
    if not text:
        return _REST_OF_A_CHARACTER
    return escape(text.removeprefix(" ")) or r"\textvisiblespace{}"


def number(value: float) -> str:
    """Nats with two decimals as Table 1 has them; what would round to nothing is "<0.01"."""
    return r"\textless{}0.01" if 0 < value < 0.005 else f"{value:.2f}"


def _column(tokens: dict[str, Any], index: int) -> dict[str, str]:
    """The cells of one token."""
    added = tokens["added"].get(str(index))
    shown = escape(added) if added else token(tokens["text"][index])
    weight = tokens["weight"][index]
    if weight is None:
        return {"long_nll": "--", "short_nll": "--", "difference": "--", "token": shown}
    level = weight_level(weight)
    box = "%s" if level == 0 else rf"\colorbox{{tw{'Above' if level > 0 else 'Below'}{abs(level)}}}{{%s}}"
    return {
        "long_nll": number(tokens["long_nll"][index]),
        "short_nll": number(tokens["short_nll"][index]),
        "difference": box % number(abs(tokens["difference"][index])),
        "token": box % (rf"\underline{{{shown}}}" if level > 0 else shown),
    }
