"""The rows of an experiment with their recipes, each built, so checked, before any runs; a row without one is a model as it is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.errors import UserError, choose
from tokenweight.files import read_json
from tokenweight.pipeline.experiment import BENCHMARKS
from tokenweight.recipes.inputs import Inputs, apply, context_of, worded
from tokenweight.recipes.recipe import Recipe, build, names, refusal, replace, scaled, seeded, shown
from tokenweight.recipes.recipe import Settings as Cited
from tokenweight.recipes.schema import Evaluation, HubBase, LocalBase, Scale
from tokenweight.reports.targets.schema import ExperimentSpec, RowSpec, Settings

RECIPE = "recipe"
_AS_IT_IS = "table-3/no-train-8k"  # the recipe that does nothing but evaluate its base
_FIELDS = {name: getattr(field.annotation, "model_fields", {}) for name, field in Evaluation.model_fields.items()}
_LENGTHS = {name: f"evaluation.{name}.lengths_tokens" for name, own in _FIELDS.items() if "lengths_tokens" in own}
_LIMITED = [
    f"evaluation.{name}.{kind}" for name, own in _FIELDS.items() for kind in ("samples", "documents") if kind in own
]
Bases = Mapping[str, LocalBase | HubBase]


@dataclass(frozen=True)
class Member:
    """A row with one value of each swept setting, at one seed after another."""

    key: str  # unique, e.g. kappa=0.2 seed=1
    row: RowSpec
    number: int  # of the row in the file
    values: Settings  # by swept setting; RECIPE is one of them where there are several
    words: Mapping[str, str]  # of the values, as labels have them
    recipe: str  # its recipe's name in manifests and graphs


def members(spec: ExperimentSpec) -> list[Member]:
    """Every row of the table. UserError for a sweep of nothing, and for two rows of one label."""
    several = len({row.recipe for row in spec.rows if row.over}) > 1
    choices = [(number, values) for number, row in enumerate(spec.rows) for values in _choices(number, row, several)]
    short = short_names(dict.fromkeys(field for _, values in choices for field in values))
    worded_as = {field: _words(values[field] for _, values in choices if field in values) for field in short}
    found: dict[str, Member] = {}
    for number, values in choices:
        row, words = spec.rows[number], {field: worded_as[field][shown(value)] for field, value in values.items()}
        key = row.key or _key(row, words, short)
        if key in found and found[key].values == values and values:
            continue  # a value given twice
        if key in found:
            raise UserError(f"rows[{number}]: has the label {key!r} of another row; give it a label of its own")
        if row.recipe is None:
            recipe = f"evaluate/{key}"
        elif RECIPE in values:
            recipe = key
        else:
            of_all = (spec.base, spec.tokenizer, spec.corpus, spec.lengths, spec.set, spec.scales)
            as_it_is = not any((*of_all, row.base, row.corpus, row.set, row.over))
            recipe = row.recipe if as_it_is else f"{row.recipe} {key}"
        found[key] = Member(key, row, number, values, words, recipe)
    return list(found.values())


def load_members(
    spec: ExperimentSpec, found: Sequence[Member], scale: str, inputs: Inputs, seeds: int, bases: Bases
) -> dict[tuple[str, int], Recipe]:
    """Their recipes, by key and seed; `bases`: models as they are that were looked at already, by row's base.

    UserError: a setting that a recipe does not have, or a value that does not fit.
    """
    made = dict[tuple[str, int], Recipe]()
    for seed, member in product(range(seeds), found):
        try:
            made[member.key, seed] = _load(spec, member, seed, scale, inputs, bases)
        except UserError as error:
            error.add_note(f"rows[{member.number}]")
            raise
    for key in (key for key in spec.common(scale) if not any(recipe.has_given(key) for recipe in made.values())):
        place = "set" if key in spec.set else f"scales.{scale}"
        raise UserError(f"{place}.{key}: {refusal(key, list(made.values()))}")
    longest = max(recipe.context_tokens for recipe in made.values())
    if spec.lengths and max(spec.lengths) > longest:
        raise UserError(f"lengths: no row has a context of {max(spec.lengths)} tokens; give lengths up to {longest}")
    return made


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """The last part of each field's name, its parent where that is just a kind; whole where two would be the same."""
    wanted = {field: field.removesuffix(".kind").rpartition(".")[2] for field in fields}
    names = list(wanted.values())
    return {field: short if names.count(short) == 1 else field for field, short in wanted.items()}


def _load(spec: ExperimentSpec, member: Member, seed: int, scale: str, inputs: Inputs, bases: Bases) -> Recipe:
    row, like = member.row, spec.scale_like(scale)
    swept = {field: value for field, value in member.values.items() if field != RECIPE}
    if twice := sorted(swept.keys() & inputs.assignments().keys()):
        raise UserError(f"--set {twice[0]}: is swept too; leave it out")
    lengths = {key: list(spec.lengths) for key in _LENGTHS.values() if spec.lengths and row.recipe}
    own = {**row.set, **swept}
    texts = (f"{key}={json.dumps(value)}" for key, value in {**spec.common(scale), **lengths, **own}.items())
    given: dict[str, Any] = {
        name: getattr(row, name, None) or getattr(inputs, name) or getattr(spec, name)
        for name in ("corpus", "base", "tokenizer")
    }
    inputs = inputs.model_copy(update={**given, "settings": (*texts, *inputs.settings)})
    if row.recipe:
        if row.recipe.partition("/seed-")[0] not in names():
            raise UserError(f"rows[{member.number}].recipe: {row.recipe!r} is unknown{choose(row.recipe, names())}")
        is_set = "seed" in inputs.assignments()
        if is_set + bool(seed) + ("/seed-" in row.recipe) > 1:
            what = f"{'--set seed: ' if is_set else ''}recipe {row.recipe!r}"
            raise UserError(f"{what} has a seed of its own; leave it out, or leave the other seeds out")
        settings = scaled(seeded(row.recipe, seed), like)
        recipe = build(seeded(member.recipe, seed), like, apply(inputs, settings, like))
    elif inputs.base:
        recipe = _evaluated(spec, member, like, inputs, bases.get(inputs.base))
    else:
        raise UserError(f"rows[{member.number}]: has neither a recipe nor a base; give one of them")
    for field in (field for field in own if not recipe.has_given(field)):
        place = f"rows[{member.number}].{'over' if field in swept else 'set'}.{field}"
        raise UserError(f"{place}: {refusal(field, [recipe])}")
    return recipe


def _evaluated(
    spec: ExperimentSpec, member: Member, scale: Scale, inputs: Inputs, base: LocalBase | HubBase | None
) -> Recipe:
    """The recipe `evaluate/<row>` of a row without one, that evaluates the inputs' base and does nothing else.

    The row's `context` takes the place of what the base's config.json says, `base` that of the model of that name.

    Lengths are the scale's, as far as the model's context holds them, or the experiment's. The context is the model's,
    but no longer than the longest length: LongBench is cut to it, as the paper cuts it to its 32k. The experiment's limit is
    the most samples of a task, subject or length, and the most documents of perplexity.

    UserError: the context is too short for a length, for all of them, or for a far context.
    """
    settings, benchmarks, label = scaled(_AS_IT_IS, scale), spec.measured_on, member.key
    if base:
        settings = replace(settings, "the model", {"base": base.model_dump()})
        context = base.context_tokens
    else:
        model = Inputs(base=inputs.base, tokenizer=inputs.tokenizer, corpus=inputs.corpus)
        settings = apply(model, settings, scale)
        context = _context_tokens(inputs.base or "", settings, member.row.context)
    usual: dict[str, tuple[int, ...]] = {name: tuple(settings[key].value) for name, key in _LENGTHS.items()}
    read = min(context, max(*spec.lengths, *chain.from_iterable(usual.values())))
    if settings["base.kind"].value != "pretrain":  # of which it is what it was trained on
        settings = replace(settings, "the model", {"base.context_tokens": read})
    for benchmark, key in _LENGTHS.items():
        lengths = spec.lengths or tuple(n for n in usual[benchmark] if n <= context)
        if benchmark in benchmarks and not lengths:
            raise UserError(
                f"--model {label}: reads {context} tokens, fewer than {benchmark}'s {', '.join(map(str, usual[benchmark]))}; "
                f"give lengths with --lengths, or choose --benchmarks without {benchmark}"
            )
        if lengths:  # else nobody reads them
            settings = replace(settings, "the model's context, or given by you", {key: lengths})
    for key in _LIMITED if spec.limit else ():
        own = settings[key].value if key in settings else None
        settings = replace(settings, "--limit", {key: min(filter(None, (spec.limit, own)))})
    if spec.backend != "hf":
        settings = replace(settings, "--backend", {"evaluation.backend": spec.backend})
    inputs = inputs.model_copy(update={"base": None, "tokenizer": None})
    recipe = build(f"evaluate/{label}", scale, apply(inputs, settings, scale))
    evaluation = recipe.evaluation
    for name in _LENGTHS.keys() & set(benchmarks):
        if (longest := max(getattr(evaluation, name).lengths_tokens)) > recipe.context_tokens:
            raise UserError(
                f"--lengths {longest}: {label} reads {recipe.context_tokens} tokens; give lengths up to that "
                "(or --context, where config.json is wrong)"
            )
    if evaluation.backend != spec.backend:
        raise UserError(f"--set evaluation.backend: give --backend {evaluation.backend} here")
    for name in BENCHMARKS.keys() & set(benchmarks):
        if why := BENCHMARKS[name].refusal(evaluation, read, context):
            raise UserError(f"--model {label}: {why}, or choose --benchmarks without {name}")
    return recipe


def _context_tokens(name: str, settings: Cited, wanted: int | None) -> int:
    """What is `wanted`, or the longest input of a base, by its config.json; of one that the pipeline makes, by its training."""
    kind: str = settings["base.kind"].value
    if kind == "hub":
        if wanted:
            return wanted
        raise UserError(f"base {name}: give the longest input in tokens, `context`, with a model of the hub")
    if kind in ("pretrain", "shipped"):
        config = {"max_position_embeddings": int(settings["base.context_tokens"].value)}
    else:
        path = Path(settings["base.path"].value) / "config.json" if kind == "local" else settings["base.config"].value
        path = shipped_config(str(path)) if str(path) in SHIPPED_CONFIGS else Path(path)
        config = read_json(path) or {}
    return context_of(config, wanted, f"base {name}", "context: ")


def _choices(number: int, row: RowSpec, several_recipes: bool) -> list[Settings]:
    for field, values in row.over.items():
        if field in ("name", "scale", RECIPE):
            raise UserError(f"rows[{number}].over.{field}: cannot be swept; write several rows")
        if not values:
            raise UserError(f"rows[{number}].over.{field}: has no values; write for example {field}: [1, 2]")
    first = {RECIPE: row.recipe} if several_recipes and row.over else {}
    return [{**first, **dict(zip(row.over, values, strict=True))} for values in product(*row.over.values())]


def _words(values: Iterable[Any]) -> dict[str, str]:
    """Of each swept value, by its text, the words: of a path its last part, or all of it where two end alike."""
    words = {shown(value): worded(value) for value in values}
    return {text: word if list(words.values()).count(word) == 1 else text for text, word in words.items()}


def _key(row: RowSpec, words: Mapping[str, str], short: Mapping[str, str]) -> str:
    swept = " ".join(text if field == RECIPE else f"{short[field]}={text}" for field, text in words.items())
    named = " ".join(filter(None, (row.group, row.label)))
    made = swept if row.over else " ".join(f"{key}={worded(value)}" for key, value in row.set.items())
    base = re.sub(r"[^A-Za-z0-9._+-]+", "-", (row.base or "").rstrip("/").rpartition("/")[2]).strip("-.")
    return " ".join(filter(None, (named, swept if named else made))) or row.recipe or base or "model"
