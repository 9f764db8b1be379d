"""A sweep as a table: a row for each member, the columns of the benchmarks asked for (no table of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokenweight.recipes.sweep import RECIPE, Member, short_names, shown
from tokenweight.reports.figures import sweep as figure
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.targets import any_model
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets.model import Column, Row, Target
from tokenweight.reports.targets.planted import PLANTED

# Of LongBench and BBH less than of a single model's table: there are many rows to read.
COLUMNS: dict[str, Callable[[Manifest], tuple[Column, ...]]] = {
    **any_model.COLUMNS,
    "bbh": lambda _: (shared.bbh(),),
    "longbench": lambda manifest: (shared.longbench("full", "LongBench"), *shared.longbench_sides(manifest)),
    "planted": PLANTED.columns,
}
NOTES = {
    **{benchmark: notes for benchmark, notes in any_model.NOTES.items() if benchmark != "ruler"},
    "planted": PLANTED.divergences,
}
_SYMBOLS = {"kappa": "κ", "lambda": "λ", "learning_rate": "learning rate", RECIPE: "recipe"}
# The column of each benchmark that the figure shows, by the beginning of its key; of several the last.
_SHOWN = {
    "mmlu": "mmlu",
    "bbh": "bbh",
    "longbench": "longbench",
    "ruler": "ruler",
    "perplexity": "perplexity-",
    "pmi": "pmi-mean",
    "planted": "nll-long_recall",
}


@dataclass(frozen=True)
class Labels:
    """How the members of a sweep are called in its table."""

    stub: tuple[str, ...]
    of_row: Mapping[str, tuple[str, str]]  # by member: group and label


def labels_of(members: Sequence[Member], fields: Sequence[str]) -> Labels:
    """The slowest field is the group where there are several and every member has them all."""
    symbols = symbols_of(fields)
    whole = all(set(member.values) == set(fields) for member in members)
    first, *others = fields
    if not whole or not others:
        heading = symbols[first] if whole else "member"
        return Labels((heading,), {m.label: ("", ", ".join(_told(f, m, symbols) for f in m.values)) for m in members})
    stub = (symbols[first], ", ".join(symbols[field] for field in others))
    rows = {m.label: (_told(first, m, symbols), ", ".join(_told(f, m, symbols) for f in others)) for m in members}
    return Labels(stub, rows)


def symbols_of(fields: Iterable[str]) -> dict[str, str]:
    """Fields as a reader of the paper knows them: κ, λ."""
    return {field: _SYMBOLS.get(name, name) for field, name in short_names(fields).items()}


def _told(field: str, member: Member, symbols: Mapping[str, str]) -> str:
    value = shown(member.values[field])
    return value if field == RECIPE else f"{symbols[field]} = {value}"


def sweep_target(
    name: str, title: str, members: Sequence[Member], fields: Sequence[str], benchmarks: Sequence[str], about: str
) -> Target:
    """The target called `name`; the first member is what the others are compared with."""
    chosen = tuple(benchmark for benchmark in COLUMNS if benchmark in benchmarks)
    labels = labels_of(members, fields)

    def columns(manifest: Manifest) -> tuple[Column, ...]:
        made = (column for benchmark in chosen for column in COLUMNS[benchmark](manifest))
        return tuple(replace(column, paper=None) for column in made)

    def headline(manifest: Manifest) -> tuple[str, ...]:
        return tuple(_headline(COLUMNS[benchmark](manifest), _SHOWN[benchmark]) for benchmark in chosen)

    values: dict[str, dict[str, Any]] = {
        member.label: {symbol: member.values.get(field) for field, symbol in symbols_of(fields).items()}
        if len(labels.stub) == 2 or len(fields) == 1
        else {"member": member.label}
        for member in members
    }
    return Target(
        name=name,
        title=title,
        paper_place="",
        rows=tuple(
            Row(m.label, label, m.loaded.recipe.name, group)
            for m in members
            for group, label in [labels.of_row[m.label]]
        ),
        columns=columns,
        stub=labels.stub,
        baseline=members[0].label if len(members) > 1 else None,
        divergences=tuple(note for benchmark in chosen for note in NOTES.get(benchmark, ())),
        command="tokenweight sweep",
        about=about,
        figure=partial(figure.draw, values=values, headline=headline),
    )


def _headline(columns: Sequence[Column], beginning: str) -> str:
    exact = [column.key for column in columns if column.key == beginning]
    return exact[0] if exact else [column.key for column in columns if column.key.startswith(beginning)][-1]
