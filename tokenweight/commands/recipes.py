"""The command `tokenweight show-config`."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json
from tokenweight.flat import Part
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import JsonOption, NamedScaleOption


@command
def show_config(
    recipe: Annotated[str, Field(description="A recipe, for example table-3/frozen-sparse")],
    /,
    *,
    scale: NamedScaleOption = "smoke",
    inputs: Annotated[Inputs, Part(Inputs, "settings")],
    as_json: JsonOption = False,
) -> None:
    """A recipe with the origin of each value."""
    from tokenweight.recipes import load
    from tokenweight.recipes.recipe import resolved

    loaded = load(recipe, scale, inputs)
    rows = list(resolved(loaded.recipe, loaded.settings))
    if as_json:
        print_json({key: {"value": value, "origin": origin} for key, value, origin in rows})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{recipe} at scale {scale}", title_justify="left")
    for heading in ("key", "value", "origin"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        table.add_row(key, json.dumps(value), origin)
    Console().print(table)
