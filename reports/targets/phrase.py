"""Table 1: the losses of each token of one phrase, with long and with short context."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenweight.pipeline.experiment import Column, Experiment, Row
from tokenweight.pipeline.measures import PhraseToken
from tokenweight.reports.paper.numbers import paper_table

NAME = "table-1"
_RECIPE = "table-3/uniform"
COLUMNS = (Column("token", "", PhraseToken()),)  # one for each token of the phrase, once a record says which they are


def columns_of(tokens: Sequence[str]) -> tuple[Column, ...]:
    """A column for each token; the paper's where no record says which they are."""
    printed = list(dict.fromkeys(column for _, column in paper_table(NAME)))
    labels = [token_label(text) for text in tokens] or printed
    papers = labels if labels == printed else [None] * len(labels)
    return tuple(
        Column(f"token-{index}", label, PhraseToken(index, tuple(tokens)), paper, paper_label=paper)
        for index, (label, paper) in enumerate(zip(labels, papers, strict=True))
    )


def token_label(text: str) -> str:
    """A token's text as a heading: without the space before it; what would not be seen as an escape."""
    seen = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text.strip(" "))
    return seen or json.dumps(text)


TABLE_1 = Experiment(
    name=NAME,
    title="Loss of each token of one phrase with long and with short context, in nats",
    paper_place="Table 1",
    rows=(
        Row("long-context-loss", "Long-context loss", _RECIPE, rule_below="full", unit="phrase/long_nll"),
        Row("short-context-loss", "Short-context loss", _RECIPE, rule_below="full", unit="phrase/short_nll"),
        Row("absolute-difference", "Absolute difference", _RECIPE, unit="phrase/difference"),
    ),
    stub=("Token",),
    divergences=(
        "The paper does not name its two models (one of 8k and one of 32k context). Here the uniform model of Table 3 reads "
        "the long context, and its base, before extension, the short windows, unless evaluation.phrase.scorer says unfrozen "
        "(the uniform model itself).",
    ),
    own_text=True,
)
