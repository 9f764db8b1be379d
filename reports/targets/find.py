"""From the texts of a command line or deployment to resolved experiments: targets, recipes on benchmarks, YAML files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import ResolvedExperiment
from tokenweight.recipes import Inputs, check_settings, names
from tokenweight.recipes.inputs import last_part
from tokenweight.recipes.options import MOST_SEEDS
from tokenweight.reports.targets import ALL, TARGETS, get_target
from tokenweight.reports.targets.members import Bases
from tokenweight.reports.targets.resolve import resolve
from tokenweight.reports.targets.schema import ExperimentSpec
from tokenweight.reports.targets.yaml_file import read_experiment

_SEEDS = re.compile(r"(.+):(\d+)")


def find_experiments(
    texts: Iterable[str | ExperimentSpec],
    scale: str,
    inputs: Inputs | None = None,
    seeds: int | None = None,
    bases: Bases | None = None,
) -> tuple[list[ResolvedExperiment], list[str]]:
    """Each experiment once, in the order of the texts; and what "paper" leaves out with these inputs, a line each.

    A text is a target (table-3), "paper" for all of them, either with its own number of seeds (table-3:5), a recipe on
    benchmarks (table-3/uniform@ruler,pmi), a YAML file, or the text of one. A setting of the user's must be one of some
    recipe of some experiment, not of each. `bases`: models that were looked at already. Raises UserError for what is none
    of these.
    """
    inputs, left_out = inputs or Inputs(), list[str]()
    found: dict[str, ResolvedExperiment] = {}
    for text in texts:
        if isinstance(text, ExperimentSpec):
            made: Iterable[ResolvedExperiment] = [resolve(text, scale, inputs, seeds, bases)]
        else:
            made = _found(text, scale, inputs, seeds, left_out)
        for resolved in made:
            found.setdefault(resolved.experiment.name, resolved)
    check_settings([loaded for resolved in found.values() for loaded in resolved.loaded], inputs)
    return list(found.values()), left_out


def targets_of(name: str) -> list[str]:
    """The targets of a name: every one of the paper for "paper", else itself."""
    return [target for target in TARGETS if get_target(target).paper_place] if name == ALL else [name]


def _found(
    text: str, scale: str, inputs: Inputs, seeds: int | None, left_out: list[str]
) -> Iterable[ResolvedExperiment]:
    if "\n" in text or text.endswith((".yaml", ".yml")):
        yield _of_file(text, scale, inputs, seeds)
        return
    own = _SEEDS.fullmatch(text)
    if own:
        text, seeds = own.group(1), int(own.group(2))
        if not 1 <= seeds <= MOST_SEEDS:
            raise UserError(f"{own.group()}: cannot have {seeds} seeds; write {text}:1 to {text}:{MOST_SEEDS}")
    if "@" in text:
        yield resolve(_of_recipe(text), scale, inputs, seeds, command=text)
        return
    for name in targets_of(text):
        if text == ALL and get_target(name).compares_corpora and inputs.corpus:
            left_out.append(f"{name} is left out: it compares two corpora, and --corpus takes the place of both")
        else:
            yield resolve(get_target(name), scale, inputs, seeds)


def _of_file(text: str, scale: str, inputs: Inputs, seeds: int | None) -> ResolvedExperiment:
    file = read_experiment(text)
    name = file.spec.name
    if name in (*TARGETS, ALL, "table-6"):
        raise UserError(f"{name}.yaml: name: {name} is a target's; choose another")
    command = f"{name}.yaml" if "\n" in text else shlex.quote(last_part(text))
    return file.placed(lambda: resolve(file.spec, scale, inputs, seeds, command=command))


def _of_recipe(text: str) -> ExperimentSpec:
    recipe, _, benchmarks = text.partition("@")
    if recipe.partition("/seed-")[0] not in names():
        raise UserError(f"recipe {recipe!r}: unknown; choose one of {', '.join(names())}, if you like with /seed-1")
    chosen = [name.strip() for name in benchmarks.split(",") if name.strip()]
    name = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-")
    try:
        return ExperimentSpec.model_validate(
            {"name": name, "rows": [{"label": recipe, "recipe": recipe}], "benchmarks": chosen}
        )
    except ValidationError:
        raise UserError(f"{text}: are no benchmarks; write for example {recipe}@ruler,mmlu") from None
