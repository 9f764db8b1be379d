"""Common and frequent words extraction: lists in which some words stand more often than others (Appendix C, Aggregation)."""

from __future__ import annotations

import math
import random
import string
from dataclasses import dataclass

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import CWE_PREFIX, CWE_TEMPLATE, FWE_PREFIX, FWE_TEMPLATE
from tokenweight.evaluation.ruler.words import single_words

COMMON = 10  # words that are asked for
ALPHA = 2.0  # of the zeta distribution that coded words are drawn by
_ZETA = math.pi**2 / 6  # zeta(ALPHA)
_LETTERS = 6


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
    """Draws samples of `size` distinct words: ten are repeated often among the others; one demonstration."""

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


class FrequentWords(Family):
    """Draws samples of about `size` coded words; a sample keeps its vocabulary while its size is sought."""

    tie_steps, reserves_generation = -1, False
    # The 2024 program lets samples overflow by their generation. Ours never do, and would lose a step for it: up to 7 %.
    shrink_parts = 8
    minimum = 120  # below, the third and the fourth most frequent word could tie

    def __init__(self, length_tokens: int) -> None:
        self.first_size = length_tokens // _LETTERS
        self.step = length_tokens // 32
        self._vocabulary_words = length_tokens // 50
        self._drawn: tuple[int, list[str]] | None = None

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """A sample of `size` words, dots included."""
        if self._drawn is None or self._drawn[0] != index:
            self._drawn = (index, self._vocabulary(draws))
        vocabulary = self._drawn[1]
        words = [
            word
            for rank, word in enumerate(vocabulary, start=1)
            for _ in range(int(size * (float(rank) ** -ALPHA) / _ZETA))
        ]
        prompt = FWE_TEMPLATE.format(context=" ".join(draws.shuffled(words))) + FWE_PREFIX
        return Draft(prompt, FWE_PREFIX, vocabulary[1:4])

    def _vocabulary(self, draws: Draws) -> list[str]:
        words: list[str] = []
        while len(words) < self._vocabulary_words or len(set(words)) < self._vocabulary_words:
            words.append("".join(draws.python.choices(string.ascii_lowercase, k=_LETTERS)))
        return ["...", *draws.shuffled(sorted(set(words)))[1:]]  # the most frequent word is noise
