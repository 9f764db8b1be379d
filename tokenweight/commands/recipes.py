"""The commands `tokenweight show-config` and `targets`: what there is to reproduce."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tokenweight.commands.options import STORE, JsonOption, ScaleOption, SetOption, StoreOption, open_store
from tokenweight.recipes.inputs import Inputs


def show_config(
    recipe: Annotated[str, typer.Argument(help="A recipe, e.g. table-3/frozen-sparse.")],
    scale: ScaleOption = "smoke",
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a recipe with the origin of each value."""
    from tokenweight.recipes import load
    from tokenweight.recipes.cited import resolved

    loaded = load(recipe, scale, Inputs(settings=tuple(settings or ())))
    rows = list(resolved(loaded.recipe, loaded.settings))
    if as_json:
        typer.echo(json.dumps({key: {"value": value, "origin": origin} for key, value, origin in rows}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{recipe} at scale {scale}", title_justify="left")
    for heading in ("key", "value", "origin"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        table.add_row(key, json.dumps(value), origin)
    Console().print(table)


def targets(scale: ScaleOption = "smoke", store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """List the targets: what each shows, the recipes it trains, those in the store, GPU-hours at the paper's scale."""
    from tokenweight.tasks.overview import overview, print_overview

    content = overview(scale, open_store(store))
    if as_json:
        typer.echo(json.dumps(content, indent=1))
    else:
        print_overview(content)
