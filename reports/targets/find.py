"""From the texts of a command line or deployment to resolved experiments: targets, recipes on benchmarks, YAML files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes import Inputs, Loaded, check_settings, load_each, names, seeded
from tokenweight.recipes.experiments import ResolvedExperiment, departures, lengths_of
from tokenweight.recipes.inputs import last_part, told
from tokenweight.recipes.schema import Scale
from tokenweight.recipes.user import UserExperiment, UserRow
from tokenweight.recipes.yaml_file import read_experiment
from tokenweight.reports.targets import ALL, TARGETS, at_lengths, get_target
from tokenweight.reports.targets.user import resolve_user

_SCALE_STATEMENTS: dict[Scale, str] = {
    "smoke": (
        "Smoke scale: a tiny model on synthetic text, a few samples per task; its numbers are not comparable "
        "with the paper's, which stand beside them only to show the place."
    ),
    "mini": (
        "Mini scale: a small model at an eighth of the paper's lengths or so; differences between rows may mean "
        "something, the values are not comparable with the paper's."
    ),
    "paper": "Paper scale: the paper's models, data and lengths.",
}
_SEEDS = re.compile(r"(.+):(\d+)")


def find_experiments(
    texts: Iterable[str], scale: str, inputs: Inputs | None = None, seeds: int | None = None
) -> tuple[list[ResolvedExperiment], list[str]]:
    """Each experiment once, in the order of the texts; and what "paper" leaves out with these inputs, a line each.

    A text is a target (table-3), "paper" for all of them, either with its own number of seeds (table-3:5), a recipe on
    benchmarks (table-3/uniform@ruler,pmi), a YAML file, or the text of one. A setting of the user's must be one of some
    recipe of some target, not of each. Raises UserError for what is none of these.
    """
    inputs, left_out = inputs or Inputs(), list[str]()
    found: dict[str, ResolvedExperiment] = {}
    of_targets: list[Loaded] = []
    for text in texts:
        for resolved in _found(text, scale, inputs, seeds, left_out):
            found.setdefault(resolved.experiment.name, resolved)
            of_targets += resolved.loaded if resolved.experiment.name in TARGETS else []
    check_settings(of_targets, inputs)
    return list(found.values()), left_out


def targets_of(name: str) -> list[str]:
    """The targets that a name stands for: every one of the paper for "paper", else itself."""
    return [target.name for target in TARGETS.values() if target.paper_place] if name == ALL else [name]


def _found(
    text: str, scale: str, inputs: Inputs, seeds: int | None, left_out: list[str]
) -> Iterable[ResolvedExperiment]:
    if "\n" in text or text.endswith((".yaml", ".yml")):
        yield _of_file(text, scale, inputs, seeds)
        return
    own = _SEEDS.fullmatch(text)
    if own:
        text, seeds = own.group(1), int(own.group(2))
        if seeds < 1:
            raise UserError(f"{own.group()}: has no seeds; write {text}:1 or more")
    recipe, at, benchmarks = text.partition("@")
    if at:
        yield _of_recipe(recipe, benchmarks, scale, inputs, seeds)
        return
    for name in targets_of(text):
        if text == ALL and TARGETS[name].compares_corpora and inputs.corpus:
            left_out.append(f"{name} is left out: it compares two corpora, and --corpus takes the place of both")
        else:
            yield resolve_target(name, scale, inputs, seeds)


def resolve_target(name: str, scale: str, inputs: Inputs, seeds: int | None = None) -> ResolvedExperiment:
    """A target, each recipe with seeds 0 to `seeds` - 1 (None: as many as it says); its settings are not judged here."""
    target = get_target(name)
    if target.compares_corpora and inputs.corpus:
        raise UserError(
            f"{name}: compares two corpora, and --corpus would take the place of both, so that all differences were 0; "
            "leave --corpus out"
        )
    own_scale: Scale = scale  # type: ignore[assignment]  # load_each refuses others
    wanted = [(recipe, seed) for seed in range(seeds or target.seeds) for recipe in target.recipes]
    loaded = dict(zip(wanted, load_each([seeded(*each) for each in wanted], own_scale, inputs), strict=True))
    recipes = {
        (row.key, seed): loaded[row.recipe, seed] for seed in range(seeds or target.seeds) for row in target.rows
    }
    lengths = lengths_of([loaded[recipe, 0] for recipe in target.recipes])
    return ResolvedExperiment(
        at_lengths(name, lengths),
        scale,
        recipes,
        inputs,
        lengths,
        about=_SCALE_STATEMENTS[own_scale],
        command=f"tokenweight reproduce {name} --scale {scale}",
        notes=(*told(inputs), *departures({recipe: loaded[recipe, 0] for recipe in target.recipes})),
    )


def _of_file(text: str, scale: str, inputs: Inputs, seeds: int | None) -> ResolvedExperiment:
    file = read_experiment(text)
    if file.experiment.name in (*TARGETS, ALL, "table-6"):
        raise UserError(f"{file.experiment.name}.yaml: name: {file.experiment.name} is a target's; choose another")
    where = text if "\n" not in text else f"{file.experiment.name}.yaml"
    command = f"tokenweight reproduce {shlex.quote(last_part(where))} --scale {scale}"
    resolved: ResolvedExperiment = file.placed(
        lambda: resolve_user(file.experiment, scale, inputs, seeds, command=command)
    )
    return resolved


def _of_recipe(recipe: str, benchmarks: str, scale: str, inputs: Inputs, seeds: int | None) -> ResolvedExperiment:
    plain = recipe.partition("/seed-")[0]
    chosen: Sequence[str] = [name.strip() for name in benchmarks.split(",") if name.strip()]
    if plain not in names():
        raise UserError(f"recipe {recipe!r}: unknown; choose one of {', '.join(names())}, if you like with /seed-1")
    name = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-")
    try:
        user = UserExperiment(name=name, rows=(UserRow(label=recipe, recipe=recipe),), benchmarks=tuple(chosen))  # type: ignore[arg-type]
    except ValidationError:
        raise UserError(f"{recipe}@{benchmarks}: are no benchmarks; write for example {recipe}@ruler,mmlu") from None
    return resolve_user(
        user, scale, inputs, seeds, command=f"tokenweight reproduce {recipe}@{benchmarks} --scale {scale}"
    )
