"""Echoes: a passage of random words and numbers, said again and again.

Nothing foretells the first saying; every later one is determined by the one before it, a passage's length back. They
teach a small model to look back at all (induction heads: Olsson et al. 2022). Without them a model of 31 M parameters
that read 105 M tokens of books and of the synthetic novel went on naming any fact of the text (docs/mini.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from random import Random

from tokenweight.corpus.documents import Document, Split, in_order
from tokenweight.corpus.lexicon import NAMES, PLACES, words
from tokenweight.recipes.schema import EchoCorpus

CHARACTERS_PER_TOKEN = 4.0
SHORTEST_PASSAGE_WORDS = 4
NUMBER_SHARE = 0.15


def documents(corpus: EchoCorpus, split: Split) -> Iterator[Document]:
    """Documents of about `corpus.document_tokens` tokens; the same seed, the same bytes."""
    return in_order(partial(_nth_echo, corpus.seed, split, corpus.document_tokens), count(corpus, split))


def count(corpus: EchoCorpus, split: Split) -> int:
    """How many documents the split has."""
    return corpus.validation_documents if split == "validation" else corpus.documents


def _nth_echo(seed: int, split: str, document_tokens: int, i: int) -> Document:
    """A passage of 4 words up to a third of the document (log-uniform), repeated to the document's length."""
    rng = Random(f"echo/{seed}/{split}/{i}")
    most = max(SHORTEST_PASSAGE_WORDS, document_tokens // 6)
    words_in_it = round(math.exp(rng.uniform(math.log(SHORTEST_PASSAGE_WORDS), math.log(most))))
    passage = " ".join(_word(rng) for _ in range(words_in_it)) + rng.choice((". ", ".\n", "\n", ", "))
    times = math.ceil(document_tokens * CHARACTERS_PER_TOKEN / len(passage))
    return Document(f"{split}-echo-{i:06d}", passage * max(2, times), "echo")


def _word(rng: Random) -> str:
    if rng.random() < NUMBER_SHARE:
        return str(rng.randint(10_000, 9_999_999))
    return rng.choice(rng.choice((words("noun"), words("adjective"), words("verb"), NAMES, PLACES)))
