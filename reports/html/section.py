"""What a page shows: reports with their recipes and commands, and the targets that were not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenweight.reports.model import Report


@dataclass(frozen=True)
class RecipeShown:
    """Settings of a recipe with values and origins, and the command that prints them."""

    settings: Sequence[tuple[str, Any, str]]
    command: str


@dataclass(frozen=True)
class Section:
    """One report. Without recipes its numbers lead to their artifacts alone."""

    report: Report
    command: str  # that makes what the report shows
    recipes: Mapping[str, RecipeShown] = field(default_factory=dict)  # by name
    divergences: tuple[str, ...] = ()  # those of the report's notes that say where it departs from the paper
    figures: tuple[str, ...] = ()  # SVG


@dataclass(frozen=True)
class NotRun:
    """A target of which there is nothing to show."""

    target: str
    title: str
    paper_place: str
    command: str
