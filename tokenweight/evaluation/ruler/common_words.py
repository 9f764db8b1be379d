"""Common words extraction: ten words repeated often among others, one demonstration (Appendix C, Aggregation)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import CWE_PREFIX, CWE_TEMPLATE
from tokenweight.evaluation.ruler.words import single_words

COMMON = 10


@dataclass(frozen=True)
class Repeats:
    """How many words the demonstration has, and how often common and other words stand in each list."""

    demonstration_words: int
    demonstration_common: int
    demonstration_other: int
    common: int
    other: int


FULL = Repeats(40, 10, 3, 30, 3)
SHORT = Repeats(20, 3, 1, 6, 1)  # the official sizes below 4096 tokens


class CommonWords(Family):
    """Draws samples of `size` distinct words."""

    step = first_size = 10
    minimum = COMMON

    def __init__(self, length_tokens: int, seed: int) -> None:
        self.repeats = SHORT if length_tokens < 4096 else FULL
        self._words = list(single_words())
        random.Random(seed).shuffle(self._words)
        self.maximum = len(self._words)

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        r = self.repeats
        example, example_answer = self._list(
            draws, r.demonstration_words, r.demonstration_common, r.demonstration_other
        )
        question, answer = self._list(draws, size, r.common, r.other)
        demonstration = CWE_TEMPLATE.format(context=example) + CWE_PREFIX + _numbered(example_answer)
        prompt = f"{demonstration}\n{CWE_TEMPLATE.format(context=question)}{CWE_PREFIX}"
        return Draft(prompt, CWE_PREFIX, answer, sizing_suffix=" " + _numbered(answer))

    def _list(self, draws: Draws, words: int, common: int, other: int) -> tuple[str, list[str]]:
        chosen = draws.python.sample(self._words, words)
        frequent, rest = chosen[:COMMON], chosen[COMMON:]
        return _numbered(draws.shuffled(frequent * common + rest * other)), frequent


def _numbered(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
