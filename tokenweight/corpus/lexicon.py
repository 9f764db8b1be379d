"""The words and sentences of the synthetic novel: the same for every seed, so that a small model can know the language.

What changes from document to document is who lives where and which number belongs to which key.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal

NOVEL: dict[str, Any] = json.loads((files("tokenweight.corpus") / "novel.json").read_text("utf-8"))

NAMES, PLACES = (tuple(map("".join, product(*NOVEL[which]))) for which in ("names", "places"))
TRADES: tuple[str, ...] = tuple(NOVEL["trades"])
KEEPSAKES: tuple[str, ...] = tuple(NOVEL["keepsakes"])
# After the first two words, which no other saying shares, every word follows from those before it.
SAYINGS: tuple[str, ...] = tuple(NOVEL["sayings"])


@cache
def words(category: Literal["adjective", "noun", "verb"]) -> tuple[str, ...]:
    """A word list of wonderwords (where RULER's keys come from) without profanities, sorted: equal in every process."""
    from wonderwords import Defaults, RandomWord

    lists = RandomWord(
        adjective=Defaults.ADJECTIVES, noun=Defaults.NOUNS, verb=Defaults.VERBS, rude=Defaults.PROFANITIES
    )
    chosen, rude = (set(lists.filter(include_categories=[which])) for which in (category, "rude"))
    return tuple(sorted(chosen - rude))
