"""What every task family offers to the sizing: drafts of a sample at a given size."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


class Draws:
    """The random state of one (task, length): Python's generator, and NumPy's where the official program uses it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)  # its stream is frozen by NumPy's policy (NEP 19)

    def shuffled(self, items: list[str]) -> list[str]:
        """A copy in the fixed order that RULER uses for every sample: a fresh generator with the same seed."""
        return [items[i] for i in _order(self.seed, len(items))]


@lru_cache(maxsize=32)  # samples have few sizes; a search tries more
def _order(seed: int, n: int) -> list[int]:
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return order


@dataclass(frozen=True)
class Draft:
    """One sample before it is known to fit.

    `prompt` includes the answer prefix. `measured` are the texts whose token counts the 2024 program
    adds up in place of the prompt's, and `sizing_suffix` what it appends while it looks for the size.
    """

    prompt: str
    answer_prefix: str
    outputs: list[str]
    sizing_suffix: str = ""
    measured: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return self.measured or (self.prompt,)


class Family(ABC):
    """How one kind of task draws a sample of a given size (words, sentences, needles or documents)."""

    first_size: int  # where the search for the size starts
    step: int  # the official step of that search
    minimum: int  # the smallest size at which the sample still is the task
    maximum: int | None = None  # the largest size that the source can give, if it is bounded
    shrink_parts = 1  # profile `paper`: more let samples begin one step higher and shrink by such a part of a step
    # Profile `official-2024`: where that program treats a family unlike the others.
    tie_steps = 1  # a sample that fills the length exactly: how many steps further the size goes
    shrinks = True  # whether an overflowing sample is drawn again smaller, or again as large
    reserves_generation = True

    @abstractmethod
    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """Sample `index` at `size`; index -1 is the search for the size. Raises ValueError if size is impossible."""
