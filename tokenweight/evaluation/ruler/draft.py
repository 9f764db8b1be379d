"""What every task family offers to the sizing: drafts of a sample at a given size."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

_ORDERS_KEPT = 32  # samples have few sizes; a search tries more


class Draws:
    """The random state of one (task, length): Python's generator, and NumPy's where the official program uses it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)  # its stream is frozen by NumPy's policy (NEP 19)
        self._orders: dict[int, list[int]] = {}  # by number of items

    def shuffled(self, items: list[str]) -> list[str]:
        """A copy in the fixed order that RULER uses for every sample: a fresh generator with the same seed."""
        order = self._orders.get(len(items))
        if order is None:
            order = list(range(len(items)))
            random.Random(self.seed).shuffle(order)
            if len(self._orders) == _ORDERS_KEPT:
                self._orders.pop(next(iter(self._orders)))
            self._orders[len(items)] = order
        return [items[i] for i in order]


@dataclass(frozen=True)
class Draft:
    """One sample before it is known to fit.

    `prompt` is whole, answer prefix included. `measured` are the texts whose token counts the 2024 program
    adds up in place of the prompt's, and `sizing_suffix` what it appends while it looks for the size.
    """

    prompt: str
    answer_prefix: str
    outputs: list[str]
    sizing_suffix: str = ""
    measured: tuple[str, ...] = field(default=())

    @property
    def parts(self) -> tuple[str, ...]:
        return self.measured or (self.prompt,)


@dataclass(frozen=True)
class Bounds:
    """Where the search of profile `current` begins: the size that is measured, and how far beyond it is looked."""

    measured_size: int
    factor: int = 3


@dataclass(frozen=True)
class Official2024:
    """Where the 2024 program treats a family unlike the others (profile `official-2024` only)."""

    tie_steps: int = 1  # a sample that fills the length exactly: how many steps further the size goes
    shrinks: bool = True  # whether an overflowing sample is drawn again smaller, or again as large
    reserves_generation: bool = True


class Family(Protocol):
    """How one kind of task draws a sample of a given size (words, sentences, needles or documents)."""

    @property
    def first_size(self) -> int:
        """Where the search for the size starts."""
        ...

    @property
    def step(self) -> int:
        """The official step of that search."""
        ...

    @property
    def shrink_parts(self) -> int:
        """Profile `paper`: more than 1 lets samples begin one step higher and shrink by such a part of a step."""
        ...

    @property
    def minimum(self) -> int:
        """The smallest size at which the sample still is the task."""
        ...

    @property
    def maximum(self) -> int | None:
        """The largest size that the source can give, if it is bounded."""
        ...

    @property
    def official(self) -> Official2024:
        """The 2024 program's peculiarities."""
        ...

    @property
    def bounds(self) -> Bounds | None:
        """The search of profile `current`; None: it grows by steps as in 2024."""
        ...

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """Sample `index` at `size`; index -1 is the search for the size. Raises ValueError if size is impossible."""
        ...
