"""A user's experiment as a table: labels by what is set or swept, the columns of its benchmarks, a figure of a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import Column, Experiment, Figure, Row
from tokenweight.recipes import Inputs
from tokenweight.recipes.cited import assignments, parse, shown
from tokenweight.recipes.experiments import ResolvedExperiment, departures, lengths_of
from tokenweight.recipes.inputs import last_part, told
from tokenweight.recipes.schema import Backend, HubBase, LocalBase, Scale
from tokenweight.recipes.user import NAME, RECIPE, Member, UserExperiment, UserRow, members, short_names
from tokenweight.reports.targets.default_columns import columns_of, headlines, notes_of

_SYMBOLS = {"kappa": "κ", "lambda": "λ", "learning_rate": "learning rate", RECIPE: "recipe"}
SCALE_STATEMENTS: Mapping[Scale, str] = {
    "smoke": "Smoke scale: a tiny model on synthetic text, a few samples per task; its numbers say nothing of real models.",
    "mini": "Mini scale: a small model at an eighth of the paper's lengths or so; differences between rows may mean something.",
    "paper": "Paper scale: the paper's models, data and lengths.",
}
_AS_THEY_ARE: Mapping[Scale, str] = {
    "smoke": "Scale smoke: shipped miniatures of the benchmarks at short lengths, to try the command; its numbers say nothing "
    "of a model.",
    "mini": "Scale mini: an eighth of the paper's lengths or so.",
    "paper": "Scale paper: the paper's benchmarks, prompts, metrics and lengths.",
}


def resolve_user(
    user: UserExperiment,
    scale: str,
    inputs: Inputs,
    seeds: int | None = None,
    bases: Mapping[str, LocalBase | HubBase] | None = None,
    command: str = "",
) -> ResolvedExperiment:
    """The experiment at a scale. UserError where a row is no valid recipe; `bases`: models that were looked at already."""
    rows = members(user, scale, inputs, seeds or user.seeds, bases)
    recipes = {
        (m.key, seed): loaded for seed in range(seeds or user.seeds) for m in rows for loaded in [m.recipes[seed]]
    }
    lengths, measured = lengths_of(list(recipes.values())), user.measured_on
    as_they_are = all(row.recipe is None for row in user.rows)
    columns = columns_of(measured, lengths, brief=not as_they_are)
    stub, labels = labels_of(rows)
    like = user.scale_like(scale)
    experiment = Experiment(
        name=user.name,
        title=user.title or _title(rows),
        rows=tuple(Row(m.key, label, m.recipe, group) for m in rows for group, label in [labels[m.key]]),
        columns=columns,
        stub=stub,
        baseline=_baseline(user, rows, labels),
        divergences=notes_of(measured, other_tokenizers=as_they_are),
        same_questions=not (as_they_are or any(row.base for row in user.rows)),
        figure=_figure(rows, columns, measured),
    )
    known = {str(m.row.recipe): m.recipes[0] for m in rows if m.row.recipe and "/seed-" not in m.row.recipe}
    about = [_AS_THEY_ARE[like] if as_they_are else SCALE_STATEMENTS[like]]
    if user.limit:
        about.append(f"Limited to {user.limit} of each task's samples: not the whole protocol.")
    if user.backend != "hf":
        about.append(f"Backend {user.backend}.")
    return ResolvedExperiment(
        experiment,
        scale,
        recipes,
        inputs,
        lengths,
        about=" ".join(about),
        command=user.command or command or f"tokenweight reproduce {user.name}.yaml --scale {scale}",
        notes=(*told(inputs), *_what_is_set(user, scale), *_swept(rows), *_models(rows), *departures(known)),
    )


def labels_of(rows: Sequence[Member]) -> tuple[tuple[str, ...], dict[str, tuple[str, str]]]:
    """Headings of the label columns, and group and label of each row by its key.

    Of a sweep the slowest setting is the group where there are several and every row has them all.
    """
    if any(m.row.label or m.row.group or not m.values for m in rows):
        labels = {m.key: (m.row.group, _own_label(m)) for m in rows}
        return (("Group", "Model") if any(group for group, _ in labels.values()) else ("Model",)), labels
    fields = list(dict.fromkeys(field for m in rows for field in m.values))
    symbols = symbols_of(fields)
    whole = all(set(m.values) == set(fields) for m in rows)
    first, *others = fields
    if not whole or not others:
        heading = symbols[first] if whole else "member"
        return (heading,), {m.key: ("", ", ".join(_told(f, m, symbols) for f in m.values)) for m in rows}
    stub = (symbols[first], ", ".join(symbols[field] for field in others))
    return stub, {m.key: (_told(first, m, symbols), ", ".join(_told(f, m, symbols) for f in others)) for m in rows}


def symbols_of(fields: Iterable[str]) -> dict[str, str]:
    """Settings as a reader of the paper knows them: κ, λ."""
    return {field: _SYMBOLS.get(name, name) for field, name in short_names(fields).items()}


def sweep_experiment(
    recipes: Sequence[str], over: Iterable[str], explicit: Iterable[str], benchmarks: Sequence[str], name: str | None
) -> UserExperiment:
    """The sweep of a command line.

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
        name = re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")
    if not re.fullmatch(NAME, name):
        raise UserError(f"--name {name}: take lowercase letters, digits and dashes, for example kappa-of-frozen")
    rows = tuple(UserRow(recipe=recipe, over=choice) for recipe in names for choice in choices)
    return UserExperiment(name=name, rows=rows, benchmarks=tuple(benchmarks), command="tokenweight sweep")  # type: ignore[arg-type]


def models_experiment(
    models: Sequence[str],
    benchmarks: Sequence[str],
    *,
    labels: Sequence[str] = (),
    lengths_tokens: tuple[int, ...] = (),
    limit: int | Mapping[str, int] | None = None,
    backend: Backend = "hf",
) -> UserExperiment:
    """Models as they are, a row each, as `evaluate --model` has them."""
    rows = tuple(
        UserRow(label=label, base=base) for base, label in zip(models, labels or [""] * len(models), strict=True)
    )
    named = re.sub(r"[^a-z0-9]+", "-", rows[0].label.lower() if len(rows) == 1 else "").strip("-")
    name = "-".join(filter(None, ("evaluation", named, "" if backend == "hf" else backend)))
    values = {
        "name": name,
        "rows": rows,
        "benchmarks": benchmarks,
        "lengths": lengths_tokens,
        "limit": limit,
        "backend": backend,
    }
    return UserExperiment.model_validate({**values, "command": "tokenweight evaluate"})


def _title(rows: Sequence[Member]) -> str:
    recipes = list(dict.fromkeys(m.row.recipe for m in rows if m.row.recipe))
    if not recipes:
        return f"Under the paper's evaluation: {', '.join(m.key for m in rows)}"
    fields = dict.fromkeys(field for m in rows for field in m.values)
    over = f" over {' and '.join(symbols_of(fields).values())}" if fields else ""
    what = "Sweep" if fields else "Models"
    return f"{what} of {recipes[0]}{over}" if len(recipes) == 1 else f"{what}{over or f' of {len(recipes)} recipes'}"


def _baseline(user: UserExperiment, rows: Sequence[Member], labels: Mapping[str, tuple[str, str]]) -> str | None:
    if user.baseline is None:
        return rows[0].key if len(rows) > 1 else None
    names = {name: m.key for m in rows for name in (m.key, labels[m.key][1], " ".join(filter(None, labels[m.key])))}
    if user.baseline not in names:
        raise UserError(f"baseline: {user.baseline!r} is no row; they are {', '.join(m.key for m in rows)}")
    return names[user.baseline]


def _figure(rows: Sequence[Member], columns: tuple[Column, ...], measured: Sequence[str]) -> Figure | None:
    fields = list(dict.fromkeys(field for m in rows for field in m.values))
    if not fields:
        return Figure(kind="pmi") if "pmi" in measured else None
    whole = all(set(m.values) == set(fields) for m in rows)
    symbols = symbols_of(fields)
    values = {m.key: {symbols[f]: m.values[f] for f in fields} if whole else {"member": m.key} for m in rows}
    return Figure(kind="sweep", values=values, columns=headlines(columns, measured))


def _own_label(member: Member) -> str:
    return member.row.label or member.key.removeprefix(f"{member.row.group} ")


def _told(field: str, member: Member, symbols: Mapping[str, str]) -> str:
    value = shown(member.values[field])
    return value if field == RECIPE else f"{symbols[field]} = {value}"


def _what_is_set(user: UserExperiment, scale: str) -> tuple[str, ...]:
    """What the file puts in place of the recipes' own for all rows."""
    given = {name: last_part(value) for name in ("base", "corpus") if (value := getattr(user, name))}
    given |= {key: shown(value) for key, value in {**user.scales.get(scale, {}), **user.set}.items()}
    return (f"Set for all rows: {', '.join(f'{key} {value}' for key, value in given.items())}.",) if given else ()


def _swept(rows: Sequence[Member]) -> list[str]:
    values: dict[str, dict[str, None]] = {}
    for member in rows:
        for field, value in member.values.items():
            values.setdefault(field, {})[shown(value)] = None
    symbols = symbols_of(values)
    told = [f"{symbols[field]} ({field}): {', '.join(found)}" for field, found in values.items()]
    return [f"Swept: {'; '.join(told)}."] if told else []


def _models(rows: Sequence[Member]) -> list[str]:
    """Which models those rows show that have no recipe."""
    told = []
    for member in rows:
        recipe = member.recipes[0].recipe
        if member.row.recipe is None:
            base = recipe.base
            which = (
                f"{base.repo_id} at {base.revision}"
                if isinstance(base, HubBase)
                else last_part(member.row.base or base.kind)
            )
            told.append(f"{member.key}: {which}; read with inputs of up to {recipe.context_tokens} tokens.")
    return told


def _values(text: str) -> list[object]:
    """Comma-separated values; JSON lists and texts in quotes may have commas of their own."""
    import json

    try:
        values: list[object] = json.loads(f"[{text}]")
    except ValueError:
        values = [parse(piece.strip()) for piece in text.split(",") if piece.strip()]
    return values


def _explicit(text: str) -> dict[str, list[object]]:
    pairs = assignments("--member", text.split())
    if not pairs:
        raise UserError("--member: is empty; write for example --member 'weighting.kappa=0.2 seed=1'")
    return {field: [parse(value)] for field, value in pairs.items()}
