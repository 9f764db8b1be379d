"""A recipe, and the settings that it is built from, which remember where each value comes from.

A recipe is written as a flat table of dotted keys, each value with its place in the paper (or the reason for it), in
paper.yaml; a scale, smoke.yaml or mini.yaml, replaces single keys of that table, so that a reader sees what differs.
A scale may be `like` another, behind whose changes come its own.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from tokenweight.errors import UserError, choose, nearest
from tokenweight.flat import TEXTS
from tokenweight.recipes import schema
from tokenweight.recipes.corpora import overlap
from tokenweight.recipes.frozen import Frozen
from tokenweight.weighting.settings import Weighting, used_settings, users

GIVEN = "given by you"
# By pydantic's kinds of mistakes.
_WORDS: dict[str, str] = json.loads(Path(__file__).with_name("mistakes.json").read_text(encoding="utf-8"))
_SHOWN = 200  # letters of a wrong value
Model = TypeVar("Model", bound=BaseModel)


class Filter(Frozen):
    """LongFilter: training reads the `share` of sequences that gain most, in the mean, from long windows over short ones.

    `model` reads both, None: the recipe's own base; more sequences are chunked, one over the share times as many.
    """

    share: float = Field(default=0.5, gt=0, lt=1)
    long_tokens: schema.Count
    short_tokens: schema.Count
    model: schema.Base | None = None


class Recipe(Frozen):
    """One model's full description: base, extension, data, weighting, training, evaluation.

    `extension` None keeps the base's context; `training` None evaluates without continued pre-training.
    `parity` "authors" follows the authors' public code where it leaves the paper's text and could matter: chunks
    (a token lost between two), NLLs (through bf16), the unfrozen first window (one column more), the choice of the
    top kappa (count, ties, filling), and the frozen scorer's RoPE type. reports/divergences.md has the table, the optional
    room tokenweight.authors_compat the code.
    """

    name: str  # e.g. table-3/frozen-sparse
    scale: schema.Scale
    base: schema.Base
    extension: schema.Extension | None = None
    corpus: schema.Corpus | None = None
    chunking: schema.Chunking | None = None
    filter: Filter | None = None
    weighting: Weighting = Weighting()
    scorer: schema.Scorer | None = None
    training: schema.Moving | None = None
    evaluation: schema.Evaluation
    seed: schema.Seed = 0
    parity: schema.Parity = "paper"
    endpoint: str | None = Field(default=None, exclude=True)  # with that backend: URL#NAME of the server and its model
    origins: dict[str, str] = Field(default={}, exclude=True, repr=False)  # of values, by dotted key

    @property
    def context_tokens(self) -> int:
        return self.extension.long_tokens if self.extension else self.base.context_tokens

    def __eq__(self, other: object) -> bool:
        """By its values, wherever they come from."""
        return isinstance(other, Recipe) and self.model_dump() == other.model_dump()

    def settings(self) -> Iterator[tuple[str, Any, str]]:
        """(dotted key, value, origin) of every value, in the order of the schema."""
        for key, value in flatten("", self.model_dump(mode="json", by_alias=True, exclude={"name", "scale"})):
            place = key
            while place and place not in self.origins:
                place = place.rpartition(".")[0]
            yield key, value, self.origins.get(place, "default of the schema")

    def has_given(self, setting: str) -> bool:
        return any(
            origin == GIVEN and (key == setting or key.startswith(f"{setting}."))
            for key, origin in self.origins.items()
        )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.training and not (self.corpus and self.chunking):
            raise ValueError("training needs corpus and chunking")
        if self.training and self.chunking and self.chunking.sequences is not None:
            reads = self.training.steps * self.training.sequences_per_step
            if self.chunking.sequences < reads:
                raise ValueError(
                    f"chunking.sequences ({self.chunking.sequences}) is less than the {reads} that training.steps times "
                    "training.sequences_per_step read"
                )
        if self.weighting.needs_short_nll and not self.scorer:
            raise ValueError(f"weighting.score {self.weighting.label!r} compares two contexts: give a scorer")
        if self.scorer and self.weighting.postprocessing == "uniform":
            raise ValueError("uniform weights take no scorer: leave it out")
        if self.scorer and not self.weighting.needs_short_nll:
            for name, value in (("kind", "unfrozen"), ("precision", "training")):
                if getattr(self.scorer, name) != value:
                    label = self.weighting.label
                    raise ValueError(
                        f"weighting.score {label!r} reads no short context: set scorer.{name} to {value!r}"
                    )
        if self.scorer and self.chunking and self.scorer.short_tokens > self.chunking.long_tokens:
            raise ValueError(
                f"scorer.short_tokens ({self.scorer.short_tokens}) exceeds chunking.long_tokens "
                f"({self.chunking.long_tokens})"
            )
        if self.scorer and self.scorer.kind == "frozen":
            context_tokens = (self.scorer.model or self.base).context_tokens
            if self.scorer.short_tokens > context_tokens:
                raise ValueError(
                    f"scorer.short_tokens ({self.scorer.short_tokens}) exceeds the scorer's context ({context_tokens})"
                )
        if self.filter and not self.training:
            raise ValueError("filter chooses what training reads: leave it out where nothing is trained")
        if self.filter and self.chunking:
            most = min((self.filter.model or self.base).context_tokens, self.chunking.long_tokens)
            if not 1 < self.filter.short_tokens < self.filter.long_tokens <= most:
                raise ValueError(
                    f"filter.short_tokens ({self.filter.short_tokens}) must be smaller than filter.long_tokens "
                    f"({self.filter.long_tokens}), and that at most what its model and a sequence have ({most})"
                )
        if self.chunking and self.chunking.long_tokens > self.context_tokens:
            long_tokens = self.chunking.long_tokens
            raise ValueError(
                f"chunking.long_tokens ({long_tokens}) exceeds the model's context ({self.context_tokens})"
            )
        for key, corpus in (
            ("corpus", self.corpus if self.training else None),
            ("base.corpus", getattr(self.base, "corpus", None)),
        ):
            if corpus and (both := overlap(corpus, self.evaluation.perplexity.corpus)):
                raise ValueError(
                    f"evaluation.perplexity.corpus.validation_documents ({both[1]}) exceeds {key}.validation_documents "
                    f"({both[0]}): texts which are trained on would be measured; set both to one number"
                )
        return self


@dataclass(frozen=True)
class Cited:
    value: Any
    origin: str  # its place in the paper, or the reason for it


Settings = dict[str, Cited]


def replace(settings: Settings, origin: str, values: Mapping[str, Any]) -> Settings:
    """`settings` with each key of `values` in place of itself and of everything under it (`base` replaces `base.*`)."""
    result = dict(settings)
    for key, value in values.items():
        result = {k: v for k, v in result.items() if k != key and not k.startswith(f"{key}.")}
        result |= {leaf: Cited(item, origin) for leaf, item in flatten(key, value)}
    return result


def nested(settings: Settings, below: str = "") -> dict[str, Any]:
    """The values of keys that begin with `below`, as nested dictionaries."""
    tree: dict[str, Any] = {}
    for key, cited in settings.items():
        if key.startswith(below):
            *parents, leaf = key.removeprefix(below).split(".")
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[leaf] = cited.value
    return tree


def build(name: str, scale: schema.Scale, settings: Settings) -> Recipe:
    """The recipe that the settings describe; raises UserError naming the field that does not fit."""
    try:
        origins = {key: cited.origin for key, cited in settings.items()}
        return Recipe.model_validate({"name": name, "scale": scale, "origins": origins, **nested(settings)})
    except ValidationError as error:
        raise UserError(f"recipe {name} ({scale}): {one_line(error)}") from None


def one_line(error: ValidationError) -> str:
    """The first thing that pydantic found wrong, in one line."""
    first = error.errors()[0]
    tags = {"novel", "files", "hub", "echo", "mixture", "local", "shipped", "pretrain", "random"}
    where = ".".join(str(part) for part in first["loc"] if part not in tags)
    return f"{where}: {what_is_wrong(first)}" if where else first["msg"].removeprefix("Value error, ")


def what_is_wrong(mistake: Mapping[str, Any]) -> str:
    """One thing that pydantic found, without its place; of what was given the beginning."""
    message, given = _WORDS.get(mistake["type"], mistake["msg"].removeprefix("Value error, ")), mistake["input"]
    return f"{message} (got {repr(given)[:_SHOWN]})" if isinstance(given, str | int | float | list) else message


def read_model(kind: type[Model], path: Path, what: str, way: str) -> Model:
    """A pydantic model from its JSON file. UserError, which says the `way` out, where the file is no such thing."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {way}") from None
    except ValidationError as error:
        raise UserError(f"{path}: is not {what} ({one_line(error)}); {way}") from None


def chosen_names(option: str, text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Comma-separated names in the order of `known`; UserError, which names the option, for others or for none."""
    every = tuple(known)
    given = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in given if name not in every]
    if not given:
        raise UserError(f"{option}: is empty; choose from {', '.join(every)}")
    if unknown:
        raise UserError(f"{option} {text}: {unknown[0]!r} is unknown{choose(unknown[0], every)}")
    return tuple(name for name in every if name in given)


def override(settings: Settings, assignments: Mapping[str, str]) -> Settings:
    """Apply `key=value` from a user to the keys that these settings know; values are read as JSON where they are JSON."""
    if not assignments:
        return settings
    has = {key for key, _, _ in build("probe", "smoke", settings).settings()}
    if settings.get("chunking.mixture", Cited("", "")).value == "lcde":
        has.add("chunking.read")
    if "scorer.kind" in settings and settings["scorer.kind"].value == "frozen":  # it scores once
        has.discard("scorer.precision")
    has = (has | {"weighting.threshold"}) - _unused(settings, assignments)  # which most weightings have not
    known = {key for key in assignments if key in has or any(leaf.startswith(f"{key}.") for leaf in has)}
    return replace(settings, GIVEN, {key: parse(assignments[key]) for key in known})


def _unused(settings: Settings, assignments: Mapping[str, str]) -> set[str]:
    """Of a user's settings those, not null, that the weighting does not read which they make of a recipe's."""
    chosen = {
        key: parse(assignments[key]) for key in ("weighting.postprocessing", "weighting.score") if key in assignments
    }
    kind, score = (
        str(chosen.get(f"weighting.{name}", settings.get(f"weighting.{name}", Cited(default, "")).value))
        for name, default in (("postprocessing", "uniform"), ("score", "abs_pmi"))
    )
    try:
        used = used_settings(kind, score)
    except ValueError:  # said by the schema
        return set()
    own = {key.removeprefix("weighting.") for key, text in assignments.items() if parse(text) is not None}
    return {f"weighting.{name}" for name in own - used if users(name)}


def refusal(setting: str, recipes: Sequence[Recipe]) -> str:
    """What is wrong with a setting that none of the recipes takes: their weightings do not read it, or none has it."""
    last, named = recipes[-1], list(dict.fromkeys(recipe.name.partition(" ")[0] for recipe in recipes))
    where = ", ".join(named) if len(named) < 3 else "these recipes"  # a row's recipe has the row's name behind
    if setting.startswith("weighting.") and (those := users(setting.removeprefix("weighting."))):
        has = {(one.weighting.postprocessing, one.weighting.label) for one in recipes}
        kinds = sorted({kind if kind == "uniform" else f"{kind} of {score}" for kind, score in has})
        have = f"{where}: {', '.join(kinds)}" if len(kinds) < 3 else f"{where} have others"
        return f"is used by {those} alone ({have}); choose that too, or leave it out"
    if (field := setting.rpartition(".")[2]) in schema.Execution.model_fields:
        return f"is how a run works, not what it computes; give --execution {field}=VALUE"
    plain = "table-3/uniform" if named[-1].startswith("evaluate/") else named[-1]
    lists = f" in {where}; `tokenweight show-config {plain} --scale {last.scale}` lists them"
    return f"no such setting{nearest(setting, {key for recipe in recipes for key in recipe.origins}) or lists}"


def assignments(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`key=value` texts as a dictionary; raises UserError, naming the option, for one without `=`."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(
                f"{option} {text}: not of the form key=value; write for example {TEXTS['examples'][option]}"
            )
        pairs[key.strip()] = value.strip()
    return pairs


def parse(text: str) -> Any:
    """A value given as text: JSON where it is JSON (12, 0.5, true, null), else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def shown(value: Any) -> str:
    """A value as labels show it; 1.0 and 1 are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries as (dotted key, value)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten(f"{prefix}.{key}" if prefix else key, item)
    else:
        yield prefix, value


def read_yaml(text: str) -> Any:
    """Values of YAML 1.2: 1e-5 is a number, off is a word. Raises ruamel's errors."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


@cache
def of_scale(scale: schema.Scale) -> dict[str, Any]:
    """What a scale says: `parts` of recipes, its `execution`, and `about` its numbers."""
    content: dict[str, Any] = read_yaml((Path(__file__).parent / f"{scale}.yaml").read_text(encoding="utf-8"))
    return {**of_scale(content["like"]), **content} if "like" in content else content


def names() -> list[str]:
    """Names of all recipes, e.g. table-3/frozen-sparse."""
    return [name for name in of_scale("paper")["parts"] if "/" in name]


def seeded(name: str, seed: int) -> str:
    """Name of a recipe's run with another seed, e.g. table-3/uniform/seed-2; seed 0 is the recipe itself."""
    return f"{name}/seed-{seed}" if seed else name


def seed_of(name: str) -> int:
    """The seed of a recipe's run, by its name."""
    seed = name.partition("/seed-")[2]
    return int(seed) if seed.isdecimal() else 0


def scaled(name: str, scale: schema.Scale) -> Settings:
    """A recipe's settings at a scale, before a user's inputs; UserError for an unknown name.

    Behind the paper's settings come the scale's parts of those names that the recipe is made of.
    """
    plain, _, seed = name.partition("/seed-")
    if plain not in names() or (seed and not seed.isdecimal()):
        raise UserError(f"recipe {name!r}: unknown{choose(plain, names())}")
    used = list(_parts(of_scale("paper")["parts"], plain))
    names_used = list(dict.fromkeys(name for name, *_ in used))
    like = of_scale(scale).get("like")
    for own in (of_scale(one)["parts"] for one in (like, scale) if one not in (None, "paper")):
        used += [change for part in names_used if part in own for change in _parts(own, part)]
    settings = Settings()
    for _, origin, values in used:
        settings = replace(settings, origin, values)
    if seed:
        settings = replace(settings, f"seed {seed}", drawn(int(seed), scale, settings))
    return settings


def drawn(seed: int, scale: schema.Scale, settings: Collection[str]) -> dict[str, int]:
    """What a seed draws of a recipe with these settings: sequences, their order and ties; what the scale says besides."""
    keys = {"seed": "training.steps", "chunking.seed": "training.steps", **of_scale(scale).get("seeds", {})}
    return {key: seed for key, where in keys.items() if where in settings}


def _parts(parts: dict[str, Any], name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a part says, and the parts that it names: the part's name, the origin of its values, the values by key."""
    for entry in parts[name] if isinstance(parts[name], list) else [parts[name]]:
        if isinstance(entry, str):
            yield from _parts(parts, entry)
        else:
            yield from ((name, origin, values) for origin, values in entry.items())
