"""Fast generation gives what the slow, obvious way gives: every prompt tokenised whole, nothing kept between steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tokenweight.evaluation.ruler import generator
from tokenweight.evaluation.ruler.sizing import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import TASKS, Sources, sentences
from tokenweight.evaluation.tokens import TokenCounter


class WholeTexts(TokenCounter):
    """Counts by the tokenizer's own call alone."""

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class PlainDraws(Draws):
    """Shuffles anew each time."""

    def shuffled(self, items: list[str]) -> list[str]:
        copy = list(items)
        random.Random(self.seed).shuffle(copy)
        return copy


def slow_samples(task: str, length_tokens: int, samples: int, tokenizer: Path, sources: Sources) -> list[Draft]:
    """Profile `paper` step by step: grow until a sample with its answer overflows, then draw, shrinking what overflows.

    Only for lengths that hold two steps.
    """
    spec, counter, draws = TASKS[task], WholeTexts(tokenizer), PlainDraws(42)
    family: Family = generator.FAMILIES[spec.family](spec, length_tokens, counter, draws, "paper")
    family.open(samples, sources)

    def tokens(text: str) -> int:
        return len(counter.tokenizer(text)["input_ids"]) + spec.new_tokens  # BOS is among them

    size = family.first_size
    while True:
        draft = family.draw(-1, size)
        if draft.measured:  # a demonstration is counted by itself while the size is sought
            taken = tokens(draft.measured[0] + draft.sizing_suffix) + counter.count(draft.measured[1])
        else:
            taken = tokens(draft.prompt + draft.sizing_suffix)
        if taken > length_tokens:
            size -= family.step
            break
        if family.maximum is not None and size + family.step > family.maximum:
            size = family.maximum
            break
        size += family.step
    assert size >= family.first_size + family.step
    found, step = [], family.step
    if task == "fwe":  # begins a step higher and shrinks by eighths of a step
        size, step = size + step, step // 8
    for index in range(samples):
        used = size
        while tokens((draft := family.draw(index, used)).prompt) > length_tokens:
            used = max(used - step, family.minimum)
        found.append(draft)
    return found


@pytest.mark.parametrize("task", TASKS)
def test_samples_are_those_of_the_slow_way(
    task: str, smoke_tokenizer: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    length_tokens = 8192 if TASKS[task].family in ("qa", "niah") else 4096
    fast = generator.generate(task, length_tokens, 4, 42, smoke_tokenizer, sources)
    monkeypatch.setattr(generator, "sentences", sentences.__wrapped__)
    slow = slow_samples(task, length_tokens, 4, smoke_tokenizer, sources)
    assert [(s["input"] + s["answer_prefix"], s["answer_prefix"], s["outputs"]) for s in fast] == [
        (s.prompt, s.answer_prefix, s.outputs) for s in slow
    ]
    tokenizer = WholeTexts(smoke_tokenizer).tokenizer
    reserved = TASKS[task].new_tokens
    assert [s["length"] for s in fast] == [len(tokenizer(s.prompt)["input_ids"]) + reserved for s in slow]
