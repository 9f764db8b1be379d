"""What the audit of the paper's numbers finds: one entry for each value, mark and sentence that was checked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tokenweight.pipeline.experiment import Frozen
from tokenweight.reports.model import Mark


class ValueCheck(Frozen):
    """A printed value beside what its sources give.

    `low` to `high` is what the sources may give before any rounding; `recomputed` is what they give as printed.
    """

    kind: str
    cell: str
    place: str
    reading: str
    sources: dict[str, str]  # printed, by cell
    printed: str
    recomputed: float
    low: float
    high: float
    follows: bool
    follows_with: dict[str, str] = Field(
        default_factory=dict
    )  # sources that the paper prints twice, with the other value
    remark: str = ""


class EmphasisCheck(Frozen):
    """The marks of a cell beside those that the caption's rule gives."""

    cell: str
    printed: tuple[Mark, ...]
    recomputed: tuple[Mark, ...]

    @property
    def follows(self) -> bool:
        """Whether both are the same."""
        return set(self.printed) == set(self.recomputed)


class Comparison(Frozen):
    """One order of two numbers that a sentence says: `text` names both."""

    text: str
    outcome: Literal["holds", "fails", "within rounding"]


class ClaimCheck(Frozen):
    """A sentence beside the cells it speaks of."""

    quote: str
    place: str
    kind: str
    reading: str
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    @property
    def exceptions(self) -> tuple[Comparison, ...]:
        """Comparisons that do not hold."""
        return tuple(comparison for comparison in self.comparisons if comparison.outcome != "holds")

    @property
    def holds(self) -> bool:
        """Whether all comparisons do."""
        return not self.exceptions


class Audit(Frozen):
    """All checks. `version` counts changes of this structure."""

    version: Literal[1] = 1
    values: tuple[ValueCheck, ...]
    emphasis: tuple[EmphasisCheck, ...]
    claims: tuple[ClaimCheck, ...]
    relations: tuple[str, ...]
    unchecked: tuple[str, ...]
