"""The experiments' recipes. `load` gives one by name, scale and a user's inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenweight.errors import UserError
from tokenweight.recipes.cited import Settings, build
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.scales import names, scaled
from tokenweight.recipes.schema import SCALES, Recipe, Scale

__all__ = ["SCALES", "Inputs", "Loaded", "check_settings", "load", "load_all", "load_each", "names", "scaled", "seeded"]


@dataclass(frozen=True)
class Loaded:
    """A recipe and the origin of its values."""

    recipe: Recipe
    settings: Settings
    known: frozenset[str] = frozenset()  # those of the user's settings that the recipe has


def seeded(name: str, seed: int) -> str:
    """Name of a recipe's run with another seed, e.g. table-3/uniform/seed-2; seed 0 is the recipe itself."""
    return f"{name}/seed-{seed}" if seed else name


def load(name: str, scale: Scale, inputs: Inputs | None = None) -> Loaded:
    """One recipe by name; raises UserError as `load_all` does."""
    return load_all([name], scale, inputs)[0]


def load_all(wanted: list[str], scale: Scale, inputs: Inputs | None = None) -> list[Loaded]:
    """Recipes by name; raises UserError for an unknown name or scale, and for a setting that none of them knows.

    A name may end in /seed-K: the recipe on other training sequences in another order, with other random ties.
    """
    loaded = load_each(wanted, scale, inputs)
    check_settings(loaded, inputs)
    return loaded


def load_each(wanted: Iterable[str], scale: Scale, inputs: Inputs | None = None) -> list[Loaded]:
    """As `load_all`, for a caller that judges the settings over more recipes than these, by `check_settings`."""
    if scale not in SCALES:
        raise UserError(f"scale {scale!r}: unknown; choose one of {', '.join(SCALES)}")
    inputs = inputs or Inputs()
    loaded = []
    for name in wanted:
        settings, known = apply(inputs, scaled(name, scale), scale)
        loaded.append(Loaded(build(name, scale, settings), settings, frozenset(known)))
    return loaded


def check_settings(loaded: list[Loaded], inputs: Inputs | None) -> None:
    """Raise UserError for a setting of the user's that none of the recipes knows."""
    given = set(inputs.assignments()) if inputs else set()
    unknown = sorted(given.difference(*(one.known for one in loaded)))
    if unknown and loaded:
        recipes, last = [one.recipe.name for one in loaded], loaded[-1].recipe
        raise UserError(
            f"--set {unknown[0]}: no such setting in {', '.join(recipes) if len(recipes) < 3 else 'these recipes'}; "
            f"`tokenweight show-config {last.name} --scale {last.scale}` lists them"
        )
