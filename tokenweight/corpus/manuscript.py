"""A text of the synthetic novel in the making: its words, pieces with their kinds, facts with their values.

Words and sentences are the same for every seed, so that a small model can know the language. What changes from document
to document is who lives where and which number belongs to which key.
"""

import json
import math
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from random import Random
from typing import Any, Literal

from tokenweight.corpus.documents import Document, Kind, Span

NOVEL: dict[str, Any] = json.loads((files("tokenweight.corpus") / "novel.json").read_text("utf-8"))

NAMES, PLACES = (tuple(map("".join, product(*NOVEL[which]))) for which in ("names", "places"))
TRADES: tuple[str, ...] = tuple(NOVEL["trades"])
KEEPSAKES: tuple[str, ...] = tuple(NOVEL["keepsakes"])
VALUES = {"home": PLACES, "trade": TRADES, "keepsake": KEEPSAKES}
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


@dataclass(slots=True, eq=False)
class Fact:
    """A key bound to a value within one document, and whether the text has stated it."""

    relation: str
    key: str
    value: str
    stated: bool = False


@dataclass
class Manuscript:
    """Text and spans of one document, written from left to right."""

    parts: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    length: int = 0  # characters

    def write(self, text: str, kind: Kind = Kind.NONE, fact: Fact | None = None) -> None:
        """Append text; everything but Kind.NONE is recorded as a span."""
        if kind is not Kind.NONE:
            self.spans.append(Span(self.length, self.length + len(text), kind, fact))
        self.parts.append(text)
        self.length += len(text)

    def write_value(self, fact: Fact) -> None:
        """The fact's value: an introduction the first time, a recall ever after."""
        self.write(fact.value, Kind.SHORT_RECALL if fact.stated else Kind.INTRODUCTION, fact)
        fact.stated = True

    def write_template(self, template: str, key: str, fact: Fact | None = None) -> None:
        """Text with `{k}` in the place of the key and `{v}` in that of the fact's value."""
        for piece in re.split(r"(\{[kv]\})", template):
            if piece == "{v}" and fact is not None:
                self.write_value(fact)
            else:
                self.write(*((key, Kind.NAME) if piece == "{k}" else (piece,)))

    def write_saying(self, saying: str, free_words: int) -> None:
        """A saying whose first words are free; the rest follows from them."""
        words = saying.split(" ")
        self.write(" ".join(words[:free_words]) + " ")
        self.write(" ".join(words[free_words:]), Kind.EASY)

    def document(self, id: str, domain: str) -> Document:
        return Document(id, "".join(self.parts), domain, tuple(self.spans))


class Memory(list[Fact]):
    """The facts of a document in the order of their last mention; draws one to mention next.

    Half of the draws are log-uniform over recency, half uniform: distances from tens of tokens to the whole
    document all occur. The few facts mentioned just before are left alone.
    """

    JUST_MENTIONED = 3

    def touch(self, fact: Fact) -> None:
        if fact in self:
            self.remove(fact)
        self.append(fact)

    def draw(self, rng: Random) -> Fact:
        older = max(1, len(self) - self.JUST_MENTIONED)
        back = int(math.exp(rng.random() * math.log(older + 1))) - 1 if rng.random() < 0.5 else rng.randrange(older)
        fact = self[older - 1 - min(back, older - 1)]
        self.touch(fact)
        return fact
