"""Which evaluation units a table is made of, and where their artifacts lie."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

Scale = Literal["smoke", "mini", "paper"]


class Frozen(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitEntry(Frozen):
    """One (checkpoint, benchmark, task, length): its artifact's address below the store and its fingerprint."""

    unit: str  # e.g. ruler/niah_single_1/4096
    benchmark: str
    task: str
    length_tokens: PositiveInt | None = None
    address: str
    fingerprint: str
    n_expected: PositiveInt | None = None  # samples; None where the recipe takes all there are


class StageEntry(Frozen):
    """An artifact that stands behind a row, such as its training."""

    address: str
    fingerprint: str


class RowEntry(Frozen):
    """One row of a target with one seed: the recipe it shows and all units of that recipe."""

    row: str
    recipe: str
    seed: int = 0
    units: tuple[UnitEntry, ...]
    train: StageEntry | None = None


class Manifest(Frozen):
    """All that `build_report` needs to know besides the store's root; written as JSON beside the results."""

    target: str
    scale: Scale
    rows: tuple[RowEntry, ...]
    longbench_split_tokens: PositiveInt
    longbench_length_unit: Literal["tokens", "words"] = "tokens"
    ruler_lengths_tokens: tuple[PositiveInt, ...] = Field(min_length=1)  # ascending; the first is the base's context
    perplexity_lengths_tokens: tuple[PositiveInt, ...] = ()  # ascending
    planted_distances_tokens: tuple[PositiveInt, ...] = ()  # ascending: recall by distance, the farthest of each bin
    phrase_tokens: tuple[str, ...] = ()  # text of each token of Table 1's phrase, as the records have it
    divergences: tuple[str, ...] = ()  # where this run departs from the paper, printed below the table
