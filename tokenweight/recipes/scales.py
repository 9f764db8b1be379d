"""The recipes' values at each scale, with the origin of each: paper.yaml, and what smoke.yaml and mini.yaml put in place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.recipes.recipe import Settings, cite, replace
from tokenweight.recipes.schema import Scale


def read_yaml(text: str) -> Any:
    """Values of YAML 1.2: 1e-5 is a number, off is a word. Raises ruamel's errors."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


@cache
def of_scale(scale: Scale) -> dict[str, Any]:
    """What a scale says: `parts` of recipes, its `execution`, and `about` its numbers."""
    content: dict[str, Any] = read_yaml((Path(__file__).parent / f"{scale}.yaml").read_text(encoding="utf-8"))
    return content


def names() -> list[str]:
    """Names of all recipes, e.g. table-3/frozen-sparse."""
    return [name for name in of_scale("paper")["parts"] if "/" in name]


def scaled(name: str, scale: Scale) -> Settings:
    """A recipe's settings at a scale, before a user's inputs; UserError for an unknown name.

    Behind the paper's settings come the scale's parts of those names that the recipe is made of.
    """
    plain, _, seed = name.partition("/seed-")
    if plain not in names() or (seed and not seed.isdecimal()):
        raise UserError(f"recipe {name!r}: unknown; choose one of {', '.join(names())}, if you like with /seed-1")
    used = list(_parts(of_scale("paper")["parts"], plain))
    settings = replace({}, *(part for _, part in used))
    if scale != "paper":
        own = of_scale(scale)["parts"]
        shared = (part for part in dict.fromkeys(part for part, _ in used) if part in own)
        settings = replace(settings, *(changes for part in shared for _, changes in _parts(own, part)))
    if seed and "training.steps" in settings:
        settings = replace(settings, cite(f"seed {seed}", {"seed": int(seed), "chunking.seed": int(seed)}))
    return settings


def _parts(parts: dict[str, Any], name: str) -> Iterator[tuple[str, Settings]]:
    """The settings that a part says, and those of the parts that it names, each with the name of its part."""
    for entry in parts[name] if isinstance(parts[name], list) else [parts[name]]:
        if isinstance(entry, str):
            yield from _parts(parts, entry)
        else:
            yield from ((name, cite(origin, values)) for origin, values in entry.items())
