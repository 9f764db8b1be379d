"""Find the size at which samples fill a length, and draw samples that fit.

The 2024 program grows the size by fixed steps until a sample overflows and shrinks an overflowing sample by the
same steps. The profile `paper` keeps those steps and that random stream, and differs in five rules:
every sample is counted whole (BOS and answer prefix included, generation reserved); where fewer than two steps
fit, the size is searched by single units; samples of frequent words begin one step higher and shrink by eighths of
a step; a sample is never drawn again without end; a task that cannot fit is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import Profile
from tokenweight.evaluation.tokens import TokenCounter

_REDRAWS = 20  # tries at the smallest size: words differ in tokens, so another draw may fit
_OFFICIAL_REDRAWS = 200  # the 2024 program tries for ever


@dataclass(frozen=True)
class Budget:
    """How many tokens a sample may take: BOS + prompt + generation <= length."""

    length_tokens: int
    tokens_to_generate: int
    counter: TokenCounter
    profile: Profile

    @property
    def official(self) -> bool:
        """Whether to count as the 2024 program does, and to do what it does where nothing fits."""
        return self.profile == "official-2024"

    def measure(self, draft: Draft) -> int:
        """Length of a sample: prompt and generation, and BOS (which the 2024 program forgets)."""
        return self._used(draft.parts if self.official else (draft.prompt,))

    def left(self, draft: Draft, family: Family) -> int:
        """Tokens to spare while the size is sought: the expected answer counts as well."""
        question, *others = draft.parts
        return self._allowed(family) - self._used((question + draft.sizing_suffix, *others))

    def fits(self, tokens: int, family: Family) -> bool:
        """Whether a sample so long keeps to the length."""
        return tokens <= self._allowed(family)

    def _used(self, texts: tuple[str, ...]) -> int:
        special = 0 if self.official else self.counter.special_tokens
        return special + sum(map(self.counter.count, texts)) + self.tokens_to_generate

    def _allowed(self, family: Family) -> int:
        forgotten = self.official and not family.reserves_generation
        return self.length_tokens + (self.tokens_to_generate if forgotten else 0)


@dataclass(frozen=True)
class Size:
    """The size for a length and the steps by which an overflowing sample shrinks."""

    units: int
    step: int


def find_size(family: Family, draws: Draws, budget: Budget, what: str) -> Size:
    """The largest size, by the profile's search, at which a sample fits.

    Raises:
        UserError: the length cannot hold the task (not in profile `official-2024`).
    """
    units = _scan(family, draws, budget)
    if budget.official or units >= family.first_size + family.step:
        if not budget.official and family.shrink_parts > 1:
            return Size(units + family.step, family.step // family.shrink_parts)
        return Size(units, family.step)

    def left(size: int) -> int:
        return budget.left(family.draw(draws, -1, size), family)

    spare = left(family.minimum)
    for _ in range(_REDRAWS):
        if spare >= 0:
            break
        spare = left(family.minimum)
    else:
        raise UserError(
            f"ruler.lengths_tokens: {what} cannot fit {budget.length_tokens} tokens with this tokenizer "
            f"(it lacks {-spare}); use a longer length"
        )
    highest = family.first_size + 2 * family.step
    units = _bisect(left, family.minimum, min(highest, family.maximum or highest))
    return Size(units, max(1, units // 25))


def _scan(family: Family, draws: Draws, budget: Budget) -> int:
    size = family.first_size
    while True:
        left = budget.left(family.draw(draws, -1, size), family)
        if left < 0 or (left == 0 and budget.official):
            # The official loop ends on equality one step further (fwe: one step before), and shrinks later.
            return size + family.step * family.tie_steps if left == 0 else size - family.step
        if family.maximum is not None and size + family.step > family.maximum:
            return family.maximum
        size += family.step


def _bisect(left: Callable[[int], int], low: int, high: int) -> int:
    while low < high:
        middle = (low + high + 1) // 2
        if left(middle) >= 0:
            low = middle
        else:
            high = middle - 1
    return low


def draw_fitting(family: Family, draws: Draws, budget: Budget, size: Size, index: int, what: str) -> tuple[Draft, int]:
    """Sample `index`, shrunk until it fits, and its length as :meth:`Budget.measure` counts it.

    Raises:
        UserError: it does not fit at the smallest size.
    """
    units = size.units
    tries = _OFFICIAL_REDRAWS if budget.official else _REDRAWS
    needed = 0
    while tries:
        try:
            draft = family.draw(draws, index, units)
            needed = budget.measure(draft)
            if budget.fits(needed, family):
                return draft, needed
        except ValueError:  # the 2024 program's own way: any failure means "try smaller"
            if not budget.official:
                raise
        smaller = _smaller(units, size.step, family, budget.official)
        tries -= smaller == units
        units = smaller
    raise UserError(
        f"ruler.lengths_tokens: sample {index} of {what} cannot fit {budget.length_tokens} tokens with this tokenizer "
        f"(it needs {needed}); use a longer length"
    )


def _smaller(units: int, step: int, family: Family, official: bool) -> int:
    if not official:
        return max(units - step, family.minimum)
    return units - step if units > step and family.shrinks else units


def find_demonstration_size(family: Family, draws: Draws, budget: Budget) -> Size:
    """The size of the demonstration of variable tracking: its own bound, in official steps."""
    return Size(max(_scan(family, draws, budget), family.minimum), family.step)
