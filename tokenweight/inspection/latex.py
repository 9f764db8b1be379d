"""A span of tokens as a LaTeX table in the form of Table 1 (Case Study)."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

from tokenweight.inspection.palette import ABOVE, BELOW, weight_level
from tokenweight.inspection.report import in_words
from tokenweight.latex import environment, printed

TOKENS_PER_BLOCK = 13  # columns of Table 1

_MARKS = {"\n": r"$\hookleftarrow$", "\t": r"$\rightarrow$", "'": r"\textquotesingle{}", "’": "’"}
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=,)(?=,)")  # -- would print as a dash, ,, as a quotation mark
_REST_OF_A_CHARACTER = r"$\triangleleft$"


def render(content: dict[str, Any], span: range) -> str:
    """The table of the tokens in `span` (of an inspection's report): a document by itself, or to `\\input` in one."""
    blocks = [span[first : first + TOKENS_PER_BLOCK] for first in range(0, len(span), TOKENS_PER_BLOCK)]
    texts = content["tokens"]["text"]
    templates = environment(Path(__file__).parent)
    templates.filters["tex"] = escape
    return templates.get_template("span.tex.jinja").render(
        blocks=[
            {
                "columns": [_column(content["tokens"], index) for index in block],
                "quote": quoted("".join(texts[index] for index in block)),
            }
            for block in blocks
        ],
        colours={
            **{f"twAbove{level}": colour.upper() for level, colour in enumerate(ABOVE, 1)},
            **{f"twBelow{level}": colour.upper() for level, colour in enumerate(BELOW, 1)},
        },
        first=span.start,
        last=span.stop - 1,
        name=content["text"]["name"],
        checkpoint=content["checkpoint"],
        long_tokens=f"{content['settings']['long_tokens']:,}",
        **in_words(content),
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, line breaks and tabs as marks; other characters as their code point."""
    return _LIGATURES.sub("{}", "".join(_escaped(character) for character in unicodedata.normalize("NFC", text)))


def token(text: str) -> str:
    """A token for a cell: without the space that begins it, as in Table 1, unless there is nothing else."""
    if not text:
        return _REST_OF_A_CHARACTER
    return escape(text.removeprefix(" ")) or r"\textvisiblespace{}"


def quoted(text: str) -> str:
    """Running text for the heading of a block, on one line."""
    return escape(text.strip(" "))


def number(value: float) -> str:
    """Nats with two decimals as Table 1 has them; what would round to nothing is "<0.01"."""
    return r"\textless{}0.01" if 0 < value < 0.005 else f"{value:.2f}"


def _escaped(character: str) -> str:
    return _MARKS.get(character) or printed(character) or rf"{{\scriptsize U+{ord(character):04X}}}"


def _column(tokens: dict[str, Any], index: int) -> dict[str, str]:
    """The cells of one token."""
    added = tokens["added"].get(str(index))
    shown = escape(added) if added else token(tokens["text"][index])
    weight = tokens["weight"][index]
    if weight is None:
        return {"long_nll": "--", "short_nll": "--", "difference": "--", "token": shown}
    level = weight_level(weight)
    return {
        "long_nll": number(tokens["long_nll"][index]),
        "short_nll": number(tokens["short_nll"][index]),
        "difference": _coloured(number(abs(tokens["difference"][index])), level),
        "token": _coloured(rf"\underline{{{shown}}}" if level > 0 else shown, level),
    }


def _coloured(text: str, level: int) -> str:
    if level == 0:
        return text
    return rf"\colorbox{{tw{'Above' if level > 0 else 'Below'}{abs(level)}}}{{{text}}}"
