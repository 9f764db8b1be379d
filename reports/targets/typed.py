"""The experiments that a command line spells out: sweeps, and models as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tokenweight.errors import UserError
from tokenweight.recipes.recipe import assignments, parse
from tokenweight.recipes.schema import Backend
from tokenweight.reports.targets.members import RECIPE, short_names
from tokenweight.reports.targets.schema import NAME, ExperimentSpec


def sweep_experiment(
    recipes: Sequence[str], over: Iterable[str], explicit: Iterable[str], benchmarks: Sequence[str], name: str | None
) -> ExperimentSpec:
    """A sweep.

    `over`: texts `field=value,value`; the rows are their product. `explicit`: in its place a text `field=value field=value`
    for each row. UserError where nothing is swept, or a text is not of its form.
    """
    names, given, swept = list(dict.fromkeys(recipes)), list(explicit), dict[str, list[object]]()
    for text in over:
        ((field, values),) = assignments("--over", [text]).items()
        if field in swept:
            raise UserError(f"--over {field}: given twice; write all its values in one, {field}=a,b")
        swept[field] = _values(values)
    if swept and given:
        raise UserError(f"--member {given[0]}: does not go with --over; leave one out")
    if not names or not (swept or given or len(names) > 1):
        raise UserError("nothing to sweep: give --over field=value,value, --member, or several recipes")
    choices = [_explicit(text) for text in given] or [swept]
    fields = [*([RECIPE] if len(names) > 1 else []), *dict.fromkeys(field for choice in choices for field in choice)]
    if name is None:
        parts = ["sweep", names[0] if len(names) == 1 else f"{len(names)} recipes"]
        parts += [short for field, short in short_names(fields).items() if field != RECIPE]
        name = _name(" ".join(parts))
    if not re.fullmatch(NAME, name):
        raise UserError(f"--name {name}: take lowercase letters, digits and dashes, for example kappa-of-frozen")
    rows = [{"recipe": recipe, "over": choice} for recipe in names for choice in choices]
    spec: dict[str, object] = {"name": name, "rows": rows, "benchmarks": benchmarks}
    return ExperimentSpec.model_validate({**spec, "command": "tokenweight sweep"})


def models_experiment(
    models: Mapping[str, str],
    benchmarks: Sequence[str],
    *,
    lengths_tokens: tuple[int, ...] = (),
    limit: int | Mapping[str, int] | None = None,
    backend: Backend = "hf",
) -> ExperimentSpec:
    """Models as they are by their labels, a row each, as `evaluate --model` has them."""
    named = _name(*models) if len(models) == 1 else ""
    name = "-".join(filter(None, ("evaluation", named, "" if backend == "hf" else backend)))
    rows = [{"label": label, "base": base} for label, base in models.items()]
    spec: dict[str, object] = {
        "name": name,
        "rows": rows,
        "benchmarks": benchmarks,
        "lengths": lengths_tokens,
        "limit": limit,
    }
    return ExperimentSpec.model_validate({**spec, "backend": backend, "command": "tokenweight evaluate"})


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _values(text: str) -> list[object]:
    """Comma-separated values; JSON lists and texts in quotes may have commas of their own."""
    whole = parse(f"[{text}]")
    return whole if isinstance(whole, list) else [parse(piece.strip()) for piece in text.split(",") if piece.strip()]


def _explicit(text: str) -> dict[str, list[object]]:
    pairs = assignments("--member", text.split())
    if not pairs:
        raise UserError("--member: is empty; write for example --member 'weighting.kappa=0.2 seed=1'")
    return {field: [parse(value)] for field, value in pairs.items()}
