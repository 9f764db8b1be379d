"""Frequent words extraction: coded words by a zeta distribution, the three most frequent asked (Appendix C)."""

from __future__ import annotations

import math
import string

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import FWE_PREFIX, FWE_TEMPLATE

ALPHA = 2.0
_ZETA = math.pi**2 / 6  # zeta(ALPHA)
_LETTERS = 6


class FrequentWords(Family):
    """Draws samples of about `size` words; a sample keeps its vocabulary while its size is sought."""

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
