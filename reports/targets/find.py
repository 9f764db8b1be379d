"""From a command line or deployment to resolved experiments: targets, recipes on benchmarks, YAML files, sweeps, models."""

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from tokenweight.errors import UserError, choose
from tokenweight.pipeline.experiment import BENCHMARKS
from tokenweight.pipeline.manifest import Manifest, ResolvedExperiment, RowEntry
from tokenweight.recipes.inputs import Inputs, check_settings, given_by, without_places, worded
from tokenweight.recipes.options import MOST_SEEDS
from tokenweight.recipes.recipe import assignments, names, of_scale, parse
from tokenweight.recipes.schema import Backend, Evaluation, Scale
from tokenweight.reports.targets import ALL, TARGETS, get_target
from tokenweight.reports.targets.labels import experiment_at, lengths_of, notes
from tokenweight.reports.targets.members import RECIPE, Bases, load_members, members, short_names
from tokenweight.reports.targets.schema import LONGEST_NAME, NAME, ExperimentSpec, read_experiment

_NAMES_ROWS = ("scorer.kind", "weighting.postprocessing", "weighting.score")
_SEEDS = re.compile(r"(.+):(\d+)")


def find_experiments(
    texts: Iterable[str | ExperimentSpec],
    scale: str,
    inputs: Inputs | None = None,
    seeds: int | None = None,
    bases: Bases | None = None,
) -> list[ResolvedExperiment]:
    """Each experiment once, with the most seeds, in the texts' order.

    A text is a target (table-3), "paper" for all of them, a recipe on benchmarks (table-3/uniform@ruler,pmi), a YAML file,
    each with its own number of seeds if it says so (table-3:5, my.yaml:5), or the text of a file. A setting of the user's
    must be one of some recipe of some experiment, not of each. `bases`: models that were looked at already. Raises UserError
    for what is none of these, and for two that differ and have one name.
    """
    inputs = inputs or Inputs()
    found: dict[str, ResolvedExperiment] = {}
    for text in texts:
        for resolved in _found(text, scale, inputs, seeds, bases):
            known = found.setdefault(resolved.name, resolved)
            if any(
                getattr(known.manifest, one) != getattr(resolved.manifest, one) for one in ("experiment", "recipes")
            ):
                raise UserError(
                    f"{resolved.name}: two experiments that differ have this name; write them as one, or name them apart"
                )
            found[resolved.name] = max(known, resolved, key=lambda one: len(one.manifest.seeds))
    check_settings([recipe for resolved in found.values() for recipe in resolved.each_recipe], inputs)
    return list(found.values())


def targets_of(name: str) -> list[str]:
    """The targets of a name: every one of the paper for "paper", else itself."""
    return [target for target in TARGETS if get_target(target).paper_place] if name == ALL else [name]


def _found(
    text: str | ExperimentSpec, scale: str, inputs: Inputs, seeds: int | None, bases: Bases | None
) -> Iterable[ResolvedExperiment]:
    if isinstance(text, ExperimentSpec):
        yield _resolve(text, scale, inputs, seeds, bases)
        return
    own = _SEEDS.fullmatch(text)
    if own:
        text, seeds = own.group(1), int(own.group(2))
        if not 1 <= seeds <= MOST_SEEDS:
            raise UserError(f"{own.group()}: {seeds} seeds are not possible; write {text}:1 to {text}:{MOST_SEEDS}")
    if "\n" in text or text.endswith((".yaml", ".yml")):
        with read_experiment(text) as spec:
            if spec.name in (*TARGETS, ALL, "table-6"):
                raise UserError(f"name: {spec.name} is the name of a target; choose another")
            if spec.figure:
                raise UserError("figure: is drawn of what is swept or measured; leave it out")
            command = f"{spec.name}.yaml" if "\n" in text else shlex.quote(without_places(text))
            yield _resolve(spec, scale, inputs, seeds, command=command)
        return
    if "@" in text:
        yield _resolve(_of_recipe(text), scale, inputs, seeds, command=text)
        return
    for name in targets_of(text):
        yield _resolve(get_target(name), scale, inputs, seeds)


def _resolve(
    spec: ExperimentSpec,
    scale: str,
    inputs: Inputs,
    seeds: int | None = None,
    bases: Bases | None = None,
    command: str = "",
) -> ResolvedExperiment:
    """The experiment at a scale, each row with seeds 0 to `seeds` - 1 (None: as many as it says); --set is not judged here."""
    if spec.name in TARGETS and (named := [key for key in inputs.assignments() if key in _NAMES_ROWS]):
        raise UserError(
            f"--set {named[0]}: the rows of {spec.name} are called by it; set it in an experiment of your own (docs/experiments.md)"
        )
    like, found = spec.scale_like(scale), members(spec)
    recipes = load_members(spec, found, scale, inputs, seeds or spec.seeds, bases or {})
    lengths = lengths_of(list(recipes.values()))
    kind = "target" if spec.name in TARGETS else "own" if spec.recipes else "models"
    about = [_about(spec, like, kind, next(iter(recipes.values())).evaluation)]
    if spec.limit:
        about.append(f"Limited to {spec.limit} of the samples of each task at each length: not the whole protocol.")
    about += [f"Backend {spec.backend}."] if spec.backend != "hf" else []
    given = given_by(inputs)
    manifest = Manifest(
        experiment=experiment_at(spec, lengths),
        scale=scale,
        lengths=lengths,
        about=" ".join(about),
        command=f"{spec.command or f'tokenweight reproduce {command or spec.name}'} --scale {scale}",
        inputs=given,
        recipes={
            m.recipe: tuple((key, without_places(value), origin) for key, value, origin in recipes[m.key, 0].settings())
            for m in found
        },
        rows=tuple(
            RowEntry(row=m.key, recipe=m.recipe, seed=seed) for seed in range(seeds or spec.seeds) for m in found
        ),
        divergences=notes(spec, found, {m.key: recipes[m.key, 0] for m in found}, scale, given),
    )
    return ResolvedExperiment(manifest, recipes)


def _about(spec: ExperimentSpec, scale: Scale, kind: str, evaluation: Evaluation) -> str:
    """What a scale says of an experiment's numbers; of models the benchmarks whose shipped data they read."""
    text, measured = str(of_scale(scale)["about"][kind]), spec.measured_on
    if "{shipped}" not in text:
        return text
    shipped = [name for name in measured if BENCHMARKS[name].reads_shipped(evaluation)]
    named = "the benchmarks" if len(shipped) == len(measured) else ", ".join(shipped)
    return text.format(shipped=named) if shipped else f"Scale {scale}, on data of the user's own."


def _of_recipe(text: str) -> ExperimentSpec:
    recipe, _, benchmarks = text.partition("@")
    if recipe.partition("/seed-")[0] not in names():
        raise UserError(f"recipe {recipe!r}: unknown{choose(recipe, names())}")
    chosen = [name.strip() for name in benchmarks.split(",") if name.strip()]
    rows = [{"label": recipe, "recipe": recipe}]
    try:
        return ExperimentSpec.model_validate({"name": _name(recipe), "rows": rows, "benchmarks": chosen})
    except ValidationError:
        raise UserError(f"{text}: has an unknown benchmark; write for example {recipe}@ruler,mmlu") from None


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
        whole = parse(f"[{values}]")  # JSON lists and texts in quotes may have commas of their own
        pieces = (parse(piece.strip()) for piece in values.split(",") if piece.strip())
        swept[field] = whole if isinstance(whole, list) else list(pieces)
        if not swept[field]:
            raise UserError(f"--over {text}: has no values; write for example {field}=1,2")
    if swept and given:
        raise UserError(f"--member {given[0]}: cannot be combined with --over; leave one out")
    if not names or not (swept or given or len(names) > 1):
        raise UserError("nothing to sweep: give --over field=value,value, --member, or several recipes")
    members = [assignments("--member", text.split()) for text in given]
    if {} in members:
        raise UserError("--member: is empty; write for example --member 'weighting.kappa=0.2 seed=1'")
    choices = [{field: [parse(value)] for field, value in member.items()} for member in members] or [swept]
    fields = [*([RECIPE] if len(names) > 1 else []), *dict.fromkeys(field for choice in choices for field in choice)]
    typed = [("--over", [f"{field}={','.join(map(worded, values))}"]) for field, values in swept.items()]
    typed += [("--member", [f"{field}={worded(value)}" for field, value in member.items()]) for member in members]
    command = _command(
        "sweep", *names, typed=[*typed, ("--measures", [",".join(benchmarks)]), ("--name", [name or ""])]
    )
    if name is None:
        parts = ["sweep", names[0] if len(names) == 1 else f"{len(names)} recipes"]
        parts += [short for field, short in short_names(fields).items() if field != RECIPE]
        name = _name(*parts)
    if not re.fullmatch(NAME, name) or len(name) > LONGEST_NAME:
        kinds = f"use lowercase letters, digits and dashes, {LONGEST_NAME} at most"
        raise UserError(f"--name {name}: {kinds}, for example kappa-of-frozen")
    if name in (*TARGETS, ALL):
        raise UserError(f"--name {name}: is the name of a target; choose another")
    rows = [{"recipe": recipe, "over": choice} for recipe in names for choice in choices]
    own = {"benchmarks": benchmarks} if benchmarks else {}
    given_values = {"name": name, "rows": rows, **own, "command": command}
    return ExperimentSpec.model_validate(given_values, context=Path.cwd())


def models_experiment(
    models: Mapping[str, str],
    benchmarks: Sequence[str],
    *,
    lengths_tokens: tuple[int, ...] = (),
    limit: int | None = None,
    backend: Backend = "hf",
) -> ExperimentSpec:
    """Models as they are by their labels, a row each, as `evaluate --model` has them."""
    name = _name("evaluation", *(models if len(models) == 1 else ()), "" if backend == "hf" else backend)
    rows = [{"label": label, "base": base} for label, base in models.items()]
    given = {"benchmarks": benchmarks, "lengths": lengths_tokens, "limit": limit, "backend": backend}
    given = {key: value for key, value in given.items() if value}
    typed = [("--model", [worded(base)]) for base in models.values()]
    typed += [("--benchmarks", [",".join(benchmarks)]), ("--lengths", [",".join(map(str, lengths_tokens))])]
    typed += [("--limit", [str(limit)])] if isinstance(limit, int) else []
    typed += [("--endpoint", ["URL#NAME"])] if backend == "endpoint" else [("--backend", [backend])]
    command = _command("evaluate", typed=typed)
    return ExperimentSpec.model_validate({"name": name, "rows": rows, **given, "command": command})


def _command(*words: str, typed: Iterable[tuple[str, list[str]]]) -> str:
    """As one types it; an option without a value is left out."""
    options = [word for option, texts in typed if any(texts) for word in (option, " ".join(texts))]
    return shlex.join(["tokenweight", *words, *options])


def _name(*texts: str) -> str:
    """For files, made of texts; of one that is too long the beginning and a digest."""
    name = re.sub(r"[^a-z0-9]+", "-", " ".join(texts).lower()).strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{digest}".replace("--", "-")
