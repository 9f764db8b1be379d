"""Token texts are the text again, whatever it holds."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus.token_texts import (
    MOST_TOKENS,
    SPAN_TOKENS,
    cut_at_offsets,
    first_tokens_with_text,
    highest_span,
    place_of,
    span_around,
)
from tokenweight.errors import UserError
from tokenweight.training.models import load_tokenizer

TOKENIZER = load_tokenizer(smoke_base_dir())


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_texts_of_all_tokens_are_the_text(text: str) -> None:
    tokens = first_tokens_with_text(TOKENIZER, text, 10_000)
    assert "".join(tokens.texts) == text
    assert tokens.ids == TOKENIZER(text).input_ids
    assert tokens.whole_text


@given(st.text(max_size=60), st.integers(2, 30))
@settings(max_examples=200)
def test_texts_of_the_first_tokens_begin_the_text(text: str, n_tokens: int) -> None:
    tokens = first_tokens_with_text(TOKENIZER, text, n_tokens)
    assert text.startswith("".join(tokens.texts))
    assert tokens.ids == TOKENIZER(text).input_ids[:n_tokens]


def test_a_split_character_belongs_to_its_first_token() -> None:
    tokens = first_tokens_with_text(TOKENIZER, "a中", 10)
    assert tokens.texts == ["", "a", "中", "", ""]
    assert tokens.added == {0: TOKENIZER.bos_token}


def test_spaces_left_out_of_the_offsets_belong_to_the_later_token() -> None:
    assert cut_at_offsets("a  bc", [(0, 0), (0, 1), (3, 4), (4, 5)]) == ["", "a", "  b", "c"]
    assert cut_at_offsets("ab", [(0, 1), (1, 2)]) == ["a", "b"]


def test_a_long_text_is_cut_and_says_so() -> None:
    text = " ".join(f"some{k}" for k in range(20_000))
    tokens = first_tokens_with_text(TOKENIZER, text, 300)
    assert not tokens.whole_text
    assert len(tokens.ids) == len(tokens.texts) == 300


def test_a_text_is_whole_where_its_last_token_is_there() -> None:
    text = "one two three four"
    tokens = len(TOKENIZER(text).input_ids)
    assert [first_tokens_with_text(TOKENIZER, text, n).whole_text for n in (tokens - 1, tokens)] == [False, True]
    assert MOST_TOKENS == 8 * SPAN_TOKENS


def test_what_a_tokenizer_adds_at_the_end_is_named_where_it_is_shown() -> None:
    tokenizer, eos = copy.deepcopy(TOKENIZER), (TOKENIZER.eos_token, TOKENIZER.eos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"$A {eos[0]}", special_tokens=[eos])
    tokens = len(tokenizer("one two three").input_ids)
    assert first_tokens_with_text(tokenizer, "one two three", tokens).added == {tokens - 1: eos[0]}
    assert first_tokens_with_text(tokenizer, "one two three", 2).added == {}


@pytest.mark.parametrize(
    ("find", "place"),
    [
        ("a", (1, 1)),
        ("ab", (1, 1)),
        ("bc", (1, 2)),
        ("c", (2, 2)),
        ("de", (3, 3)),
        ("abcde", (1, 3)),
        ("x", None),
        ("", None),
    ],
)
def test_the_tokens_that_hold_a_text(find: str, place: tuple[int, int] | None) -> None:
    assert place_of(["", "ab", "c", "de"], find) == place


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(UserError, match=r"tokenizer\.json"):
        first_tokens_with_text(Slow(), "a", 10)


@pytest.mark.parametrize(
    ("token", "n_tokens", "span"), [(50, 100, (44, 57)), (2, 100, (0, 13)), (99, 100, (87, 100)), (3, 9, (0, 9))]
)
def test_a_table_shows_thirteen_tokens_around_one(token: int, n_tokens: int, span: tuple[int, int]) -> None:
    assert span_around(token, n_tokens) == range(*span)
    weights = np.zeros(n_tokens - 1)  # of predictions: the first token has none
    weights[token - 1] = 1
    assert highest_span(weights) == range(*span)
