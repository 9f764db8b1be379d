"""Contexts of the code tasks: small Python modules whose next line repeats an earlier pattern."""

from __future__ import annotations

from typing import Any

from smoke_eval.world import World
from tokenweight.corpus.manuscript import KEEPSAKES, PLACES, TRADES

Made = dict[str, Any]


def _function(world: World) -> list[str]:
    rng = world.rng
    thing, trade, place = rng.choice(KEEPSAKES), rng.choice(TRADES), rng.choice(PLACES)
    return [
        f"def count_{thing}s(shop):",
        f'    """Count the {thing}s of the {trade} of {place}."""',
        f"    {thing}s = shop.get('{thing}')",
        f"    if {thing}s is None:",
        "        return 0",
        f"    total = sum({thing}s.values())",
        "    return total",
        "",
        "",
    ]


def _lines(world: World, words: int) -> list[str]:
    lines: list[str] = []
    while sum(len(line.split()) for line in lines) < words * 2 // 5:  # code has two to three tokens a word
        lines += _function(world)
    return lines


def one_file(world: World, words: int) -> Made:
    before, last = _lines(world, words), _function(world)
    cut = world.rng.randint(3, 6)
    return {"context": "\n".join([*before, *last[:cut]]) + "\n", "answers": [last[cut]]}


def repository(world: World, words: int) -> Made:
    files = []
    for number in range(1, 3):
        name = world.rng.choice(PLACES).lower()
        files.append(f"# Path: shop/{name}_{number}.py\n" + "\n".join(_lines(world, words * 2 // 5)))
    last = _function(world)
    cut = world.rng.randint(3, 6)
    here = f"# Path: shop/{world.rng.choice(PLACES).lower()}.py\n" + "\n".join(last[:cut]) + "\n"
    return {"context": "\n".join(files), "input": here, "answers": [last[cut]]}
