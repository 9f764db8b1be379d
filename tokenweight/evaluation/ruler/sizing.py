"""Find the size at which samples fill a length, and draw samples that fit: by fixed steps, as the 2024 program does.

Where the profile `paper` differs from that program: docs/ruler.md.
"""

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.tasks import Profile, RulerTask, Sources
from tokenweight.evaluation.tokens import TokenCounter

_REDRAWS = 20  # tries at the smallest size: words differ in tokens, so another draw may fit
_OFFICIAL_REDRAWS = 200  # the 2024 program tries for ever


class Draws:
    """The random state of one (task, length): Python's generator, and NumPy's where the official program uses it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.python = random.Random(seed)
        self.numpy = np.random.RandomState(seed)  # its stream is frozen by NumPy's policy (NEP 19)

    def words(self, number: int, alphabet: str, letters: int) -> list[str]:
        """Made-up words, drawn until so many are distinct."""
        found: list[str] = []
        while len(set(found)) < number:
            found.append("".join(self.python.choices(alphabet, k=letters)))
        return found

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
    """One sample before it is known to fit."""

    prompt: str  # with the answer prefix
    answer_prefix: str
    outputs: list[str]
    sizing_suffix: str = ""  # what the 2024 program appends while it looks for the size
    measured: tuple[str, ...] = ()  # texts whose token counts that program adds up in place of the prompt's


class Family(ABC):
    """One task at one length: draws samples of a given size (words, sentences, needles, documents) and counts them."""

    first_size: int  # where the search for the size starts
    step: int  # the official step of that search
    minimum: int  # the smallest size at which the sample still is the task
    maximum: int | None = None  # the largest size that the source can give, if it is bounded
    shrink_parts = 1  # profile `paper`: more let samples begin one step higher and shrink by such a part of a step
    # Profile `official-2024`: where that program treats a family unlike the others.
    tie_steps = 1  # a sample that fills the length exactly: how many steps further the size goes
    shrinks = True  # whether an overflowing sample is drawn again smaller, or again as large
    reserves_generation = True

    def __init__(
        self, task: RulerTask, length_tokens: int, counter: TokenCounter, draws: Draws, profile: Profile
    ) -> None:
        self.task, self.length_tokens, self.counter, self.draws = task, length_tokens, counter, draws
        self.profile = profile
        self.official = profile.startswith("official-2024")  # counts as that program does, and ends so if nothing fits

    @abstractmethod
    def open(self, samples: int, sources: Sources) -> None:
        """Read what samples are made of. UserError: it cannot be read, or gives fewer samples."""

    @abstractmethod
    def draw(self, index: int, size: int) -> Draft:
        """Sample `index` at `size`; index -1 is the search for the size. Raises ValueError if size is impossible."""

    def measure(self, draft: Draft, *, sought: bool = False) -> int:
        """Length of a sample: prompt and generation, and BOS (which the 2024 program forgets); while its size is sought
        the expected answer counts as well."""
        prompt, *others = draft.measured if draft.measured and (self.official or sought) else (draft.prompt,)
        texts = (prompt + draft.sizing_suffix if sought else prompt, *others)
        special = 0 if self.official else self.counter.special_tokens
        return special + sum(map(self.counter.count, texts)) + self.task.new_tokens

    def left(self, size: int) -> int:
        """Tokens to spare at a size while it is sought."""
        return self.allowed - self.measure(self.draw(-1, size), sought=True)

    @property
    def allowed(self) -> int:
        """The most tokens of a sample: BOS + prompt + generation."""
        forgotten = self.official and not self.reserves_generation
        return self.length_tokens + (self.task.new_tokens if forgotten else 0)


def find_size(family: Family, what: str) -> tuple[int, int]:
    """The largest size, by the profile's search, at which a sample fits, and the step by which one that overflows shrinks.

    UserError: none fits, in profile `paper`.
    """
    size, step = scan(family), family.step
    if family.official or (size >= family.first_size + step and family.shrink_parts == 1):
        return size, step
    if size >= family.first_size + step:
        return size + step, step // family.shrink_parts
    for _ in range(_REDRAWS):
        if (spare := family.left(family.minimum)) >= 0:
            break
    else:
        raise UserError(
            f"ruler.lengths_tokens: {what} cannot fit {family.length_tokens} tokens with this tokenizer "
            f"(it lacks {-spare}); use a longer length"
        )
    highest = family.first_size + 2 * step
    low, high = family.minimum, min(highest, family.maximum or highest)
    while low < high:
        middle = (low + high + 1) // 2
        if family.left(middle) >= 0:
            low = middle
        else:
            high = middle - 1
    return low, max(1, low // 25)


def scan(family: Family) -> int:
    """The last size before a sample overflows, in official steps."""
    size = family.first_size
    while True:
        left = family.left(size)
        if left < 0 or (left == 0 and family.official):
            # The official loop ends on equality one step further (fwe: one step before), and shrinks later.
            return size + family.step * family.tie_steps if left == 0 else size - family.step
        if family.maximum is not None and size + family.step > family.maximum:
            return family.maximum
        size += family.step


def draw_fitting(family: Family, size: tuple[int, int], index: int, what: str) -> tuple[Draft, int]:
    """Sample `index`, shrunk until it fits, and its length by :meth:`Family.measure`. UserError: the smallest does not."""
    (units, step), needed = size, 0
    tries = _OFFICIAL_REDRAWS if family.official else _REDRAWS
    while tries:
        try:
            draft = family.draw(index, units)
            needed = family.measure(draft)
            if needed <= family.allowed:
                return draft, needed
        except ValueError:  # the 2024 program's own way: any failure means "try smaller"
            if not family.official:
                raise
        if family.official:
            smaller = units - step if units > step and family.shrinks else units
        else:
            smaller = max(units - step, family.minimum)
        tries -= smaller == units
        units = smaller
    raise UserError(
        f"ruler.lengths_tokens: sample {index} of {what} cannot fit {family.length_tokens} tokens with this tokenizer "
        f"(it needs {needed}); use a longer length"
    )
