"""Texts that samples are made of: word lists of wonderwords, and English prose split into sentences.

The 2024 program splits with NLTK's English Punkt model (Kiss and Strunk, 2006), whose data have to be downloaded.
These are its rules for ends of sentences with its abbreviations and sentence starters, over a small table of our own
in place of its learned capitalisation counts (sentences.yaml): no download, the same cuts in every process. Measured
against NLTK 3.10 with its data: 3,296 of 3,297 cuts agree in the first 60,000 words of Bleak House (all where official
samples are known), 97 % over five other novels (that version also cuts at curly quotes, which the 2024 rules did not).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate

from tokenweight.evaluation.data import table

_WORDS = {name: frozenset(words.split()) for name, words in table("ruler/sentences").items()}
_ABBREVIATIONS = _WORDS["abbreviations"]
_BEGIN_SENTENCES = _WORDS["starters"] | _WORDS["never_capitalised"]
_END = re.compile(r"""[.?!](?=[)";}\]*:@'({\[!?]|\s+\S)""")
_BOUNDARY = re.compile(r"""[\s("`{\[:;&#*@)}\],?!]|--""")
_CLOSING = re.compile(r"""\s*["')\]}]+?(?:\s+|(?=--)|$)""")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.\-]*")
_ELLIPSIS = re.compile(r"\.\.+$")
# Where the next chunk holds an end of its own, the program cuts before it as well.
_END_INSIDE = re.compile(r"""\s+\S*?[^\s.?!][.?!]+[)";}\]*:@'({\[!?]""")
_NEXT = re.compile(r"""\s*(--+|\.\.+|[^\s("`{\[:;&#*@)}\]\-,]+|\S)""")


@lru_cache(maxsize=64)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences of `text` in order, without the white space between them."""
    cuts = list(_cuts(text))
    found = [text[start:end].strip() for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return tuple(sentence for sentence in found if sentence)


def _cuts(text: str) -> Iterator[int]:
    """Ends of sentences, closing quotes and brackets included."""
    last = 0
    for match in _END.finditer(text):
        end = match.end()
        if end <= last or not _ends_sentence(text, end):
            continue
        closing = _CLOSING.match(text, end)
        last = closing.end() if closing else end
        yield last


def _ends_sentence(text: str, end: int) -> bool:
    if text[end - 1] != "." or _END_INSIDE.match(text, end):
        return True
    chunk = text[max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1 : end - 1]
    word = _BOUNDARY.split(chunk)[-1].lstrip("-") + "."
    stem = word[:-1].lower()
    following = _NEXT.match(text, end)
    after = following.group(1) if following else ""
    capital, plain = after[:1].isupper(), after.lower().rstrip(".")
    begins_sentence = capital and plain in _BEGIN_SENTENCES  # it is capitalised only because a sentence begins with it
    if _ELLIPSIS.search(word):
        return begins_sentence
    initial, number = len(stem) == 1 and stem.isalpha(), _NUMBER.fullmatch(stem) is not None
    if stem in _ABBREVIATIONS or stem.rpartition("-")[2] in _ABBREVIATIONS:
        return not initial and begins_sentence
    if initial or number:
        lower = after[:1].islower() or after in (";", ":", ",", ".", "!", "?")
        known = plain in _WORDS["small_words"] or plain in _BEGIN_SENTENCES or plain in single_words()
        return not (lower or (initial and capital and not known))
    return True


def _list(name: str) -> list[str]:
    from wonderwords import random_word

    words: list[str] = random_word._get_words_from_text_file(name)  # as the official program reads them
    return words


@cache
def single_words() -> frozenset[str]:
    """All nouns, adjectives and verbs: the vocabulary of common words extraction."""
    return frozenset({*_list("nounlist.txt"), *_list("adjectivelist.txt"), *_list("verblist.txt")})


class AdjectiveNouns:
    """sorted({f"{adjective}-{noun}"}), some six million keys, without making them.

    Sorted order is adjective by adjective, except where one adjective continues another after a hyphen
    (old, old-fashioned): such a block is merged in full.
    """

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        every = sorted(set(nouns))
        self._blocks: list[tuple[str, list[str]]] = []  # beginning of keys, and their sorted ends
        for stem in sorted(f"{adjective}-" for adjective in set(adjectives)):
            if self._blocks and stem.startswith(self._blocks[-1][0]):
                first, ends = self._blocks.pop()
                more = (stem.removeprefix(first) + noun for noun in every)
                self._blocks.append((first, sorted({*ends, *more})))
            else:
                self._blocks.append((stem, every))
        self._starts = list(accumulate((len(ends) for _, ends in self._blocks), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> str:
        at = bisect_right(self._starts, index) - 1
        first, ends = self._blocks[at]
        return first + ends[index - self._starts[at]]


@cache
def needle_keys() -> AdjectiveNouns:
    """The keys of needles, e.g. "wry-rainbow"."""
    return AdjectiveNouns(_list("adjectivelist.txt"), _list("nounlist.txt"))
