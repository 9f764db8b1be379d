"""The experiments' recipes. `load` gives one by name, scale and a user's inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenweight.errors import UserError
from tokenweight.recipes.inputs import Inputs as Inputs
from tokenweight.recipes.inputs import apply
from tokenweight.recipes.recipe import Recipe, Settings, build
from tokenweight.recipes.recipe import names as names
from tokenweight.recipes.recipe import scaled as scaled
from tokenweight.recipes.schema import SCALES as SCALES
from tokenweight.recipes.schema import Scale


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe and the origin of its values."""

    recipe: Recipe
    settings: Settings
    known: frozenset[str] = frozenset()  # those of the user's settings that the recipe has


def seeded(name: str, seed: int) -> str:
    """Name of a recipe's run with another seed, e.g. table-3/uniform/seed-2; seed 0 is the recipe itself."""
    return f"{name}/seed-{seed}" if seed else name


def load(name: str, scale: Scale, inputs: Inputs | None = None) -> ResolvedRecipe:
    """One recipe by name; raises UserError as `load_all` does."""
    return load_all([name], scale, inputs)[0]


def load_all(wanted: Iterable[str], scale: Scale, inputs: Inputs | None = None) -> list[ResolvedRecipe]:
    """Recipes by name; raises UserError for an unknown name or scale, and for a setting that none of them knows.

    A name may end in /seed-K: the recipe on other training sequences in another order, with other random ties.
    """
    if scale not in SCALES:
        raise UserError(f"scale {scale!r}: unknown; choose one of {', '.join(SCALES)}")
    inputs = inputs or Inputs()
    loaded = [load_as(name, scaled(name, scale), scale, inputs) for name in wanted]
    check_settings(loaded, inputs)
    return loaded


def load_as(name: str, settings: Settings, scale: Scale, inputs: Inputs) -> ResolvedRecipe:
    """A recipe of settings with a user's inputs in place; the user's settings are judged by `check_settings`."""
    settings, known = apply(inputs, settings, scale)
    return ResolvedRecipe(build(name, scale, settings), settings, frozenset(known))


def check_settings(loaded: list[ResolvedRecipe], inputs: Inputs) -> None:
    """Raise UserError for a setting of the user's that none of the recipes knows."""
    unknown = sorted(set(inputs.assignments()).difference(*(one.known for one in loaded)))
    if unknown and loaded:
        recipes, last = [one.recipe.name for one in loaded], loaded[-1].recipe
        plain = last.name.partition(" ")[0]  # a row's recipe has the row's name behind
        raise UserError(
            f"--set {unknown[0]}: no such setting in {', '.join(recipes) if len(recipes) < 3 else 'these recipes'}; "
            f"`tokenweight show-config {plain} --scale {last.scale}` lists them"
        )
