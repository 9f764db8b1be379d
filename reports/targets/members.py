"""The rows of an experiment with their recipes: every one is built, so checked, before any runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from typing import Any

from tokenweight.errors import UserError
from tokenweight.recipes import Inputs, ResolvedRecipe, load_as, scaled, seeded
from tokenweight.recipes.recipe import parse, shown
from tokenweight.recipes.schema import HubBase, LocalBase
from tokenweight.reports.targets.any_model import LENGTHS, evaluation_recipe
from tokenweight.reports.targets.schema import ExperimentSpec, RowSpec, Settings

RECIPE, SEED = "recipe", "seed"
Bases = Mapping[str, LocalBase | HubBase]


@dataclass(frozen=True)
class Member:
    """A row with one value of each swept setting, at one seed after another."""

    key: str  # unique, e.g. kappa=0.2 seed=1
    row: RowSpec
    number: int  # of the row in the file
    values: Settings  # by swept setting; RECIPE is one of them where there are several
    recipe: str  # its recipe's name in manifests and graphs


def members(spec: ExperimentSpec) -> list[Member]:
    """Every row of the table. UserError for a sweep of nothing, and for two rows of one label."""
    several = len({row.recipe for row in spec.rows if row.over}) > 1
    choices = [(number, values) for number, row in enumerate(spec.rows) for values in _choices(number, row, several)]
    short = short_names(dict.fromkeys(field for _, values in choices for field in values))
    found: dict[str, Member] = {}
    for number, values in choices:
        row = spec.rows[number]
        key = row.key or _key(row, values, short)
        if key in found and found[key].values == values and values:
            continue  # a value given twice
        if key in found:
            raise UserError(f"rows[{number}]: is called {key!r} as another is; give it a label of its own")
        if row.recipe is None:
            recipe = f"evaluate/{key}"
        elif RECIPE in values:
            recipe = key
        else:
            as_it_is = not (spec.changes_recipes or row.base or row.corpus or row.set or row.over)
            recipe = row.recipe if as_it_is else f"{row.recipe} {key}"
        found[key] = Member(key, row, number, values, recipe)
    return list(found.values())


def load_members(
    spec: ExperimentSpec, found: Iterable[Member], scale: str, inputs: Inputs, seeds: int, bases: Bases
) -> dict[tuple[str, int], ResolvedRecipe]:
    """Their recipes, by key and seed; `bases`: models as they are that were looked at already, by row's base.

    Raises:
        UserError: a setting that a recipe does not have, or a value that does not fit.
    """
    made = {(m.key, seed): _load(spec, m, seed, scale, inputs, bases) for seed in range(seeds) for m in found}
    if unknown := [key for key in spec.set if not any(key in loaded.known for loaded in made.values())]:
        near = nearest(unknown[0], {key for loaded in made.values() for key in loaded.settings})
        raise UserError(f"set.{unknown[0]}: no such setting in any row{near}")
    return made


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """The last part of each field's name, its parent where that is just a kind; whole where two would be the same."""
    wanted = {field: field.removesuffix(".kind").rpartition(".")[2] for field in fields}
    names = list(wanted.values())
    return {field: short if names.count(short) == 1 else field for field, short in wanted.items()}


def nearest(key: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" where a known key is much like it."""
    close = get_close_matches(key, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _load(spec: ExperimentSpec, member: Member, seed: int, scale: str, inputs: Inputs, bases: Bases) -> ResolvedRecipe:
    row, like = member.row, spec.scale_like(scale)
    swept = {field: value for field, value in member.values.items() if field not in (RECIPE, SEED)}
    if twice := sorted(swept.keys() & inputs.assignments().keys()):
        raise UserError(f"--set {twice[0]}: is swept too; leave it out")
    lengths = {key: list(spec.lengths) for key in LENGTHS.values() if spec.lengths and row.recipe}
    own = {**row.set, **swept}
    texts = (f"{key}={_text(value)}" for key, value in {**spec.common(scale), **lengths, **own}.items())
    given: dict[str, Any] = {
        name: getattr(row, name, None) or getattr(inputs, name) or getattr(spec, name)
        for name in ("corpus", "base", "tokenizer")
    }
    inputs = inputs.model_copy(update={**given, "settings": (*texts, *inputs.settings)})
    if row.recipe:
        chosen = member.values.get(SEED, 0)
        if not isinstance(chosen, int) or isinstance(chosen, bool) or chosen < 0:
            raise UserError(f"seed={shown(chosen)}: not a seed; give whole numbers from 0")
        if (chosen or seed) and "/seed-" in row.recipe:
            raise UserError(f"recipe {row.recipe!r}: has a seed of its own; leave it out where there are others")
        settings = scaled(seeded(row.recipe, chosen or seed), like)
        loaded = load_as(seeded(member.recipe, seed), settings, like, inputs)
    elif inputs.base:
        loaded = evaluation_recipe(spec, member.key, like, inputs, row.context, bases.get(inputs.base))
    else:
        raise UserError(f"rows[{member.number}]: has neither a recipe nor a base; give one of them")
    for field in (field for field in own if field not in loaded.known):
        lists = f"`tokenweight show-config {row.recipe or 'table-3/uniform'} --scale {like}` lists them"
        other = f" in {row.recipe or 'an evaluation'}; {lists}"
        place = f"rows[{member.number}].{'over' if field in swept else 'set'}.{field}"
        raise UserError(f"{place}: no such setting{nearest(field, loaded.settings) or other}")
    return loaded


def _choices(number: int, row: RowSpec, several_recipes: bool) -> list[Settings]:
    for field, values in row.over.items():
        if field in ("name", "scale", RECIPE):
            raise UserError(f"rows[{number}].over.{field}: cannot be swept; give several rows")
        if not values:
            raise UserError(f"rows[{number}].over.{field}: has no values; write for example {field}: [1, 2]")
    first = {RECIPE: row.recipe} if several_recipes and row.over else {}
    return [{**first, **dict(zip(row.over, values, strict=True))} for values in product(*row.over.values())]


def _key(row: RowSpec, values: Settings, short: Mapping[str, str]) -> str:
    swept = " ".join(shown(v) if field == RECIPE else f"{short[field]}={shown(v)}" for field, v in values.items())
    named = " ".join(filter(None, (row.group, row.label)))
    made = swept if row.over else " ".join(f"{key}={shown(value)}" for key, value in row.set.items())
    base = re.sub(r"[^A-Za-z0-9._+-]+", "-", (row.base or "").rstrip("/").rpartition("/")[2]).strip("-.")
    return " ".join(filter(None, (named, swept if named else made))) or row.recipe or base or "model"


def _text(value: Any) -> str:
    """As :func:`parse` reads it back."""
    return value if isinstance(value, str) and parse(value) == value else json.dumps(value)
