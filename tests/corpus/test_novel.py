"""The synthetic novel: same bytes everywhere, right labels, enough recall at all distances."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from random import Random

import numpy as np
import pytest

from tokenweight.corpus import novel
from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds
from tokenweight.corpus.manuscript import SAYINGS, Manuscript
from tokenweight.corpus.sources import document_count, documents
from tokenweight.recipes.schema import EchoCorpus, NovelCorpus

FROZEN = "a36afee929756edb3b34dbf6cab236b74b7e31091c4b51f70fc024c11c32774f"
DIGEST = """
import hashlib
from tokenweight.corpus import novel
h = hashlib.sha256()
for d in [*novel.books(3, "train", 2, 2000), *novel.short_pieces(3, "train", 30)]:
    h.update(d.text.encode()); h.update(repr(d.spans).encode())
print(h.hexdigest())
"""


@pytest.fixture(scope="module")
def two_books() -> list[Document]:
    return list(novel.books(0, "train", 2, 20_000))


def test_same_bytes_under_any_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(run.stdout.split()[-1])
    assert len(digests) == 1


def test_the_texts_are_those_that_were_frozen() -> None:
    """Stores know a novel by its seed: other words under the same seed would be served as the same."""
    found = [
        *novel.books(3, "train", 2, 4000),
        *novel.short_pieces(3, "train", 200),
        *novel.short_pieces(3, "validation", 40),
        *documents(EchoCorpus(documents=2, validation_documents=1), "train"),
    ]
    for write in (novel._niah, novel._tracking, novel._common_words, novel._frequent_words):
        for characters in range(500, 700):  # each border of how much is written
            manuscript = Manuscript()
            write(Random(characters), manuscript, characters)
            found.append(manuscript.document(f"{characters}", write.__name__))
    contents = [*(f"{one.id} {one.domain}\n{one.text}\n{one.spans}" for one in found), novel.haystack_text(0, 5000)]
    assert hashlib.sha256("".join(contents).encode()).hexdigest() == FROZEN


def test_the_codes_in_kinds_npy_stay() -> None:
    codes = {"NONE": 0, "LONG_RECALL": 1, "SHORT_RECALL": 2, "EASY": 3, "NAME": 4, "INTRODUCTION": 5, "HARD": 6}
    assert {kind.name: kind.value for kind in Kind} == codes


def test_seeds_and_splits_differ() -> None:
    texts = {next(novel.books(seed, split, 1, 500)).text for seed in (0, 1) for split in ("train", "validation")}
    assert len(texts) == 4


def test_spans_are_sorted_disjoint_and_say_what_the_text_says(two_books: list[Document]) -> None:
    for document in [*two_books, *novel.short_pieces(0, "train", 60)]:
        end = 0
        values: dict[int, str] = {}
        for span in document.spans:
            assert end <= span.start < span.end <= len(document.text)
            end = span.end
            if span.kind is Kind.INTRODUCTION:
                assert span.fact not in values
                assert span.fact is not None
                values[span.fact] = document.text[span.start : span.end]
            elif span.kind is Kind.SHORT_RECALL:
                assert span.fact is not None
                assert values[span.fact] == document.text[span.start : span.end]


def test_sayings_are_determined_after_two_words() -> None:
    assert len({tuple(saying.split()[:2]) for saying in SAYINGS}) == len(SAYINGS)


def test_recall_is_a_sixth_of_the_text_at_all_distances(two_books: list[Document], shipped: Encoder) -> None:
    kinds, distances = [], []
    for document in two_books:
        encoded = shipped.encode(document)
        assert encoded.kinds is not None
        assert encoded.distances is not None
        kinds.append(encoded.kinds)
        distances.append(encoded.distances[encoded.kinds == Kind.SHORT_RECALL])
    share = np.mean(np.concatenate(kinds) == Kind.SHORT_RECALL)
    near, far = np.percentile(np.concatenate(distances), [10, 95])
    assert share >= 1 / 6
    assert near < 100
    assert far > 2500
    assert np.mean(np.concatenate(distances) > 1024) > 0.15


def test_every_token_has_the_kind_of_the_span_it_overlaps(shipped: Encoder) -> None:
    document = next(novel.short_pieces(5, "train", 1))
    encoded = shipped.encode(document)
    offsets = shipped._tokenizer(document.text, add_special_tokens=False, return_offsets_mapping=True)
    assert encoded.kinds is not None
    assert offsets["input_ids"] == encoded.tokens.tolist()
    for kind, (start, end) in zip(encoded.kinds, offsets["offset_mapping"], strict=True):
        overlapping = {span.kind for span in document.spans if span.start < end and start < span.end}
        assert (kind in overlapping) if overlapping else kind == Kind.NONE


def test_distance_is_tokens_back_to_the_last_mention(shipped: Encoder) -> None:
    document = next(novel.short_pieces(5, "train", 1))
    encoded = shipped.encode(document)
    assert encoded.kinds is not None
    assert encoded.distances is not None
    recalls = np.flatnonzero(encoded.distances)
    assert len(recalls) > 10
    same = encoded.tokens[recalls] == encoded.tokens[recalls - encoded.distances[recalls]]
    first_of_value = np.concatenate([[True], np.diff(recalls) > 1])
    assert np.mean(same[first_of_value]) > 0.95  # a value after "is " or ": " may be cut into other tokens


def test_a_recall_is_resolved_by_what_the_sequence_holds() -> None:
    recall = np.array([Kind.SHORT_RECALL] * 3, np.uint8)
    distances = np.array([10, 2000, 2000], np.uint32)
    positions = np.array([50, 3000, 1500])
    assert resolve_kinds(recall, distances, positions, 1024).tolist() == [
        Kind.SHORT_RECALL,
        Kind.LONG_RECALL,
        Kind.INTRODUCTION,
    ]


def test_training_has_short_pieces_of_three_domains_and_validation_only_books() -> None:
    corpus = NovelCorpus(documents=2, document_tokens=3000, validation_documents=2)
    train, validation = list(documents(corpus, "train")), list(documents(corpus, "validation"))
    assert len(train) == document_count(corpus, "train")
    assert len({document.id for document in train}) == len(train)
    assert set(Counter(document.domain for document in train)) == {"chronicle", "ledger", "exercises"}
    assert [document.id for document in validation] == ["validation-book-00000", "validation-book-00001"]


def test_exercises_use_the_words_of_ruler() -> None:
    text = "\n".join(d.text for d in novel.short_pieces(0, "train", 240) if d.domain == "exercises")
    for phrase in (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\n",
        "Some special magic numbers are hidden within the following text. Make sure to memorize them. "
        "I will quiz you about the numbers afterwards.\n",
        "5 variables are assgined the value ",
        "Question: What are the 10 most common words in the above list? "
        "Answer: The top 10 words that appear most often in the list are:1. ",
        "the three most frequently appeared words are: ",
    ):
        assert phrase in text


def test_haystack_is_plain_text_without_numbers() -> None:
    text = novel.haystack_text(0)
    assert 60_000 < len(text) < 100_000
    assert not any(character.isdigit() for character in text)
    assert "magic" not in text
    assert hashlib.sha256(text.encode()).digest() == hashlib.sha256(novel.haystack_text(0).encode()).digest()
