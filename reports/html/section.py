"""What a page shows: reports with their recipes and commands, and the targets that were not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenweight.recipes import Loaded
from tokenweight.reports.model import Report


@dataclass(frozen=True)
class RecipeShown:
    """A recipe with the origin of its values, and the command that prints them."""

    loaded: Loaded
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
