"""A sweep: recipes times values of their fields. Every member is a recipe that is built, so checked, before any runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tokenweight.errors import UserError
from tokenweight.recipes import Loaded, scaled, seeded
from tokenweight.recipes.cited import assignments, build, parse
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.schema import Scale

RECIPE, SEED = "recipe", "seed"
_CHOSEN_ELSEWHERE = {"name": "the recipe's own", "scale": "chosen with --scale", RECIPE: "given as an argument"}


@dataclass(frozen=True)
class Member:
    """One recipe of a sweep; `loaded.recipe.name` is the recipe's name and the label, as names must differ."""

    label: str  # e.g. kappa=0.2 seed=1
    recipe: str  # as it was given
    values: dict[str, Any]  # by swept field; RECIPE is one of them where there are several
    loaded: Loaded


@dataclass(frozen=True)
class Sweep:
    """A name for files and runs, and the members in the order of the table."""

    name: str
    members: tuple[Member, ...]
    inputs: Inputs

    @property
    def fields(self) -> tuple[str, ...]:
        """The swept fields, those that change slowest first."""
        return tuple(dict.fromkeys(field for member in self.members for field in member.values))


def sweep_of(
    recipes: Sequence[str],
    over: Iterable[str],
    explicit: Iterable[str],
    scale: Scale,
    inputs: Inputs,
    name: str | None = None,
) -> Sweep:
    """The members of a sweep.

    `over`: texts `field=value,value`; the members are their product. `explicit`: in its place a text
    `field=value field=value` for each member. Values are JSON where they are JSON; `seed=K` is the recipe's run with
    other training data, as `/seed-K` and `--seeds` make it.

    Raises:
        UserError: nothing is swept, a field is unknown to a recipe or given twice, or a member is no valid recipe.
    """
    names, given = list(dict.fromkeys(recipes)), list(explicit)
    swept = _swept(over)
    if swept and given:
        raise UserError(f"--member {given[0]}: does not go with --over; leave one out")
    if not names or not (swept or given or len(names) > 1):
        raise UserError("nothing to sweep: give --over field=value,value, --member, or several recipes")
    choices = [_explicit(text) for text in given] or [
        dict(zip(swept, values, strict=True)) for values in product(*swept.values())
    ]
    every = [{RECIPE: recipe, **choice} if len(names) > 1 else choice for recipe in names for choice in choices]
    short = short_names(dict.fromkeys(field for values in every for field in values))
    members: dict[str, Member] = {}
    for recipe, values in zip((recipe for recipe in names for _ in choices), every, strict=True):
        label = _label(values, short)
        if label not in members:
            members[label] = Member(label, recipe, values, _load(recipe, label, values, scale, inputs))
    if unknown := sorted(set(inputs.assignments()).difference(*(member.loaded.known for member in members.values()))):
        raise UserError(f"--set {unknown[0]}: no such setting in {', '.join(names)}; see `tokenweight show-config`")
    return Sweep(_named(name, names, short), tuple(members.values()), inputs)


def shown(value: Any) -> str:
    """A value as it stands in labels; 1.0 and 1 are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """The last part of each field's name, its parent where that is just a kind; whole where two would be the same."""
    wanted = {field: field.removesuffix(".kind").rpartition(".")[2] for field in fields}
    names = list(wanted.values())
    return {field: short if names.count(short) == 1 else field for field, short in wanted.items()}


def _swept(over: Iterable[str]) -> dict[str, list[Any]]:
    swept: dict[str, list[Any]] = {}
    for text in over:
        ((field, values),) = assignments("--over", [text]).items()
        if field in swept:
            raise UserError(f"--over {field}: given twice; write all its values in one, {field}=a,b")
        _check_field("--over", field)
        swept[field] = _values(values)
        if not swept[field]:
            raise UserError(f"--over {text}: no values; write for example {field}=a,b")
    return swept


def _values(text: str) -> list[Any]:
    """Comma-separated values; JSON lists and texts in quotes may have commas of their own."""
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except ValueError:
        values = [parse(piece.strip()) for piece in text.split(",") if piece.strip()]
    return values


def _explicit(text: str) -> dict[str, Any]:
    pairs = assignments("--member", text.split())
    if not pairs:
        raise UserError("--member: is empty; write for example --member 'weighting.kappa=0.2 seed=1'")
    for field in pairs:
        _check_field("--member", field)
    return {field: parse(value) for field, value in pairs.items()}


def _check_field(option: str, field: str) -> None:
    if field in _CHOSEN_ELSEWHERE:
        raise UserError(f"{option} {field}: is {_CHOSEN_ELSEWHERE[field]}; leave it out here")


def _load(recipe: str, label: str, values: dict[str, Any], scale: Scale, inputs: Inputs) -> Loaded:
    """A member's recipe."""
    fields = {field: value for field, value in values.items() if field not in (RECIPE, SEED)}
    if twice := sorted(fields.keys() & inputs.assignments().keys()):
        raise UserError(f"--set {twice[0]}: is swept too; leave it out")
    texts = tuple(f"{field}={_text(value)}" for field, value in fields.items())
    own = inputs.model_copy(update={"settings": (*inputs.settings, *texts)})
    settings, known = apply(own, scaled(_with_seed(recipe, values.get(SEED, 0)), scale), scale)
    if unknown := [field for field in fields if field not in known]:
        raise UserError(
            f"{unknown[0]}: is swept, and {recipe} has no such setting; `tokenweight show-config {recipe} --scale {scale}` "
            "lists them"
        )
    return Loaded(
        build(label if RECIPE in values else f"{recipe} {label}", scale, settings), settings, frozenset(known)
    )


def _text(value: Any) -> str:
    """As :func:`parse` reads it back."""
    return value if isinstance(value, str) and parse(value) == value else json.dumps(value)


def _with_seed(recipe: str, seed: Any) -> str:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError(f"seed={shown(seed)}: not a seed; give whole numbers from 0")
    if seed and "/seed-" in recipe:
        raise UserError(f"recipe {recipe!r}: has a seed of its own; leave it out where seed is swept")
    return seeded(recipe, seed)


def _label(values: dict[str, Any], short: dict[str, str]) -> str:
    return " ".join(
        shown(value) if field == RECIPE else f"{short[field]}={shown(value)}" for field, value in values.items()
    )


def _named(given: str | None, recipes: list[str], short: dict[str, str]) -> str:
    """The user's name, or one made of the recipe and the fields."""
    if given is None:
        parts = [recipes[0] if len(recipes) == 1 else f"{len(recipes)} recipes"]
        parts += [name for field, name in short.items() if field != RECIPE]
        return re.sub(r"[^a-z0-9]+", "-", " ".join(["sweep", *parts]).lower()).strip("-")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given):
        raise UserError(f"--name {given}: take lowercase letters, digits and dashes, for example kappa-of-frozen")
    return given
