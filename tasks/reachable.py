"""Which artifacts the targets need: for what is listed of a store, and for what a clean-up keeps. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenweight.errors import UserError
from tokenweight.pipeline import Store
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Scale
from tokenweight.tasks.collect import plan_targets, ready_targets


@dataclass
class Needs:
    """By fingerprint: which targets need an artifact, and for which of their recipes."""

    targets: dict[str, list[str]] = field(default_factory=dict)
    recipes: dict[str, list[str]] = field(default_factory=dict)
    soon: set[str] = field(default_factory=set)  # inputs of what is not made yet


def needs(names: Iterable[str], scale: Scale, inputs: Inputs, store: Store) -> Needs:
    """What targets need at a scale, with a user's inputs. UserError for an unknown target."""
    found = Needs()
    for name in names:
        for planned in plan_targets(name, scale, inputs, store)[0]:
            for node in planned.graph.artifacts:
                fingerprint = node.identity.fingerprint
                _add(found.targets, fingerprint, planned.target.name)
                for recipe in planned.graph.wanted_by(node):
                    _add(found.recipes, fingerprint, recipe)
            for step in schedule(planned.graph, store):
                if step.action != "reuse":
                    found.soon.update(node.fingerprint for node in step.artifact.parents)
    return found


def listed(names: str | None) -> list[str]:
    """Comma-separated targets; None: all. UserError where none is named."""
    if names is None:
        return ready_targets()
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UserError("--keep-targets: names none; write for example table-3,table-9")
    return wanted


def _add(lists: dict[str, list[str]], key: str, value: str) -> None:
    values = lists.setdefault(key, [])
    if value not in values:
        values.append(value)
