"""The word lists of wonderwords as RULER uses them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate


def _list(name: str) -> list[str]:
    from wonderwords import random_word

    words: list[str] = random_word._get_words_from_text_file(name)  # as the official program reads them
    return words


@lru_cache(maxsize=1)
def single_words() -> tuple[str, ...]:
    """All nouns, adjectives and verbs, sorted: the vocabulary of common words extraction."""
    return tuple(sorted({*_list("nounlist.txt"), *_list("adjectivelist.txt"), *_list("verblist.txt")}))


class AdjectiveNouns:
    """sorted({f"{adjective}-{noun}"}), some six million keys, without making them.

    Sorted order is adjective by adjective, except where one adjective continues another after a hyphen
    (old, old-fashioned): such a cluster is merged in full.
    """

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        self._nouns = sorted(set(nouns))
        clusters: list[list[str]] = []
        for stem in sorted(f"{adjective}-" for adjective in set(adjectives)):
            if clusters and stem.startswith(clusters[-1][0]):
                clusters[-1].append(stem)
            else:
                clusters.append([stem])
        self._clusters: list[str | list[str]] = [c[0] if len(c) == 1 else self._merged(c) for c in clusters]
        sizes = [len(self._nouns) if isinstance(c, str) else len(c) for c in self._clusters]
        self._starts = list(accumulate(sizes, initial=0))

    def _merged(self, stems: list[str]) -> list[str]:
        return sorted({stem + noun for stem in stems for noun in self._nouns})

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = bisect_right(self._starts, index) - 1
        cluster, offset = self._clusters[at], index - self._starts[at]
        return cluster + self._nouns[offset] if isinstance(cluster, str) else cluster[offset]


@lru_cache(maxsize=1)
def needle_keys() -> AdjectiveNouns:
    """The keys of needles, e.g. "wry-rainbow"."""
    return AdjectiveNouns(_list("adjectivelist.txt"), _list("nounlist.txt"))
