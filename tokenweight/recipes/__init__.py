"""The experiments as code. `load` gives a recipe by name, scale and a user's inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenweight.errors import UserError
from tokenweight.recipes import ablations, mini, paper, smoke
from tokenweight.recipes.cited import Settings, build, cite, replace
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.schema import Recipe, Scale

SCALES: tuple[Scale, ...] = ("smoke", "mini", "paper")

RECIPES = {**paper.RECIPES, **ablations.RECIPES}

__all__ = [
    "SCALES", "Inputs", "Loaded", "check_settings", "load", "load_all", "load_each", "names", "scaled", "seeded",
]  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A recipe and the origin of its values."""

    recipe: Recipe
    settings: Settings
    known: frozenset[str] = frozenset()  # those of the user's settings that the recipe has


def names() -> list[str]:
    """Names of all recipes, e.g. table-3/frozen-sparse."""
    return list(RECIPES)


def seeded(name: str, seed: int) -> str:
    """Name of a recipe's run with another seed, e.g. table-3/uniform/seed-2; seed 0 is the recipe itself."""
    return f"{name}/seed-{seed}" if seed else name


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


def load(name: str, scale: Scale, inputs: Inputs | None = None) -> Loaded:
    """One recipe by name; raises UserError as `load_all` does."""
    return load_all([name], scale, inputs)[0]


def scaled(name: str, scale: Scale) -> Settings:
    """A recipe's settings at a scale, before a user's inputs; UserError for an unknown name."""
    plain, _, seed = name.partition("/seed-")
    if plain not in RECIPES or (seed and not seed.isdecimal()):
        raise UserError(f"recipe {name!r}: unknown; choose one of {', '.join(names())}, if you like with /seed-1")
    settings = paper.settings_of(RECIPES[plain])
    scalings = {"smoke": smoke.SCALING, "mini": mini.SCALING}
    settings = scalings[scale].apply(settings) if scale in scalings else settings
    if seed and "training.steps" in settings:
        settings = replace(settings, cite(f"seed {seed}", {"seed": int(seed), "chunking.seed": int(seed)}))
    return settings
