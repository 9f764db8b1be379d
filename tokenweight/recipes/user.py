"""A user's own experiment as data: rows of recipes or models, what is changed in them, what they are measured on.

YAML files, sweeps and `evaluate --model` are all one of these (docs/experiments.md). Every row's recipe is built, so checked,
before any runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from tokenweight.errors import UserError
from tokenweight.recipes import Loaded, scaled, seeded
from tokenweight.recipes.any_model import evaluation_recipe
from tokenweight.recipes.cited import build, parse, shown
from tokenweight.recipes.inputs import Inputs, apply
from tokenweight.recipes.schema import Backend, Frozen, HubBase, LocalBase, Scale

RECIPE, SEED = "recipe", "seed"
Benchmark = Literal["ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "planted"]
SWEPT_ON: tuple[Benchmark, ...] = ("ruler", "longbench", "mmlu")  # what the paper's own ablations show
NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
Settings = dict[str, Any]  # by dotted key
Bases = Mapping[str, LocalBase | HubBase]


class UserRow(Frozen):
    """One row, or with `over` one for each combination of its values."""

    label: str = Field(default="", description="What the row is called; without one, by what is set")
    group: str = Field(default="", description="What several rows share, left of their labels")
    recipe: str | None = Field(default=None, description="E.g. table-3/frozen-sparse; none: the model as it is")
    base: str | None = Field(default=None, description="In place of the experiment's")
    corpus: str | None = Field(default=None, description="In place of the experiment's")
    context: PositiveInt | None = Field(default=None, description="Longest input of a model as it is, in tokens")
    set: Settings = Field(default={}, description="Settings of the recipe, by the keys of show-config")
    over: dict[str, list[Any]] = Field(default={}, description="Settings with several values each: a row for each")


class UserExperiment(Frozen):
    """Rows x benchmarks x seeds. Paths are relative to the file that it is read from."""

    name: str = Field(pattern=f"^{NAME}$", description="Of files: lowercase letters, digits and dashes")
    title: str = Field(default="", description="Above the table")
    base: str | None = Field(default=None, description="Directory of a model, ORG/NAME@COMMIT, pretrain, random:CONFIG")
    tokenizer: str | None = Field(
        default=None, description="Directory with tokenizer.json, for base pretrain or random"
    )
    corpus: str | None = Field(default=None, description="Directory of .txt, .jsonl or .parquet")
    benchmarks: tuple[Benchmark, ...] = Field(default=(), description="What the rows are measured on")
    lengths: tuple[PositiveInt, ...] = Field(default=(), description="RULER's and perplexity's, in tokens")
    seeds: PositiveInt = Field(default=1, description="Runs of each row with other training sequences")
    baseline: str | None = Field(default=None, description="Label of the row the others are compared with; the first")
    set: Settings = Field(default={}, description="Settings of all rows that have them")
    rows: tuple[UserRow, ...] = Field(min_length=1)
    scales: dict[str, Settings] = Field(
        default={}, description="Settings at a scale, by its name; `like` names another"
    )
    limit: PositiveInt | dict[str, PositiveInt] | None = Field(default=None, description="Samples of a task at most")
    backend: Backend = Field(default="hf", description="Of models as they are: hf or vllm")
    command: str = Field(default="", description="That runs it, where that is not `tokenweight reproduce FILE`")

    @model_validator(mode="after")
    def _known_scales(self) -> UserExperiment:
        for name, settings in self.scales.items():
            if name not in ("smoke", "mini", "paper") and settings.get("like") not in ("smoke", "mini", "paper"):
                raise ValueError(f"scales.{name}: is a scale of your own; say `like: smoke` (or mini, paper)")
        return self

    def scale_like(self, name: str) -> Scale:
        """The named scale that a scale's settings change."""
        like: Any = self.scales.get(name, {}).get("like", name)
        if like not in ("smoke", "mini", "paper"):
            own = ", ".join(("smoke", "mini", "paper", *self.scales))
            raise UserError(f"scale {name!r}: unknown; choose one of {own}")
        return like  # type: ignore[no-any-return]

    @property
    def measured_on(self) -> tuple[Benchmark, ...]:
        """The benchmarks given, or usual ones: for models as they are all but pmi, which reads whole documents twice."""
        if self.benchmarks:
            return self.benchmarks
        if any(row.recipe for row in self.rows):
            return SWEPT_ON
        every: tuple[Benchmark, ...] = ("ruler", "longbench", "mmlu", "bbh")
        return every if self.backend == "vllm" else (*every, "perplexity")


@dataclass(frozen=True)
class Member:
    """A row with one value of each swept setting, at one seed after another."""

    key: str  # unique, e.g. kappa=0.2 seed=1
    row: UserRow
    number: int  # of the row in the file
    values: Settings  # by swept setting; RECIPE is one of them where there are several
    recipes: tuple[Loaded, ...]  # by seed

    @property
    def recipe(self) -> str:
        """Its recipe's name in manifests and graphs."""
        return self.recipes[0].recipe.name


def members(
    user: UserExperiment, scale: str, inputs: Inputs, seeds: int, bases: Bases | None = None
) -> tuple[Member, ...]:
    """Every row of the table with its recipes; `bases`: models as they are that were looked at already, by row's base.

    Raises:
        UserError: a setting that a recipe does not have, a value that does not fit, two rows of one label.
    """
    recipes = list(dict.fromkeys(row.recipe for row in user.rows if row.over))
    choices = [
        (number, row, values) for number, row in enumerate(user.rows) for values in _choices(row, len(recipes) > 1)
    ]
    short = short_names(dict.fromkeys(field for _, _, values in choices for field in values))
    found: dict[str, Member] = {}
    known: set[str] = set()
    common = {**{key: value for key, value in user.scales.get(scale, {}).items() if key != "like"}, **user.set}
    for number, row, values in choices:
        key = _key(row, values, short)
        if key in found and found[key].values == values and values:
            continue  # a value given twice
        if key in found:
            raise UserError(f"rows[{number}]: is called {key!r} as another is; give it a label of its own")
        loader = _Loader(user, row, number, key, values, common, scale, inputs, bases or {})
        loaded = tuple(loader.load(seed) for seed in range(seeds))
        known |= loaded[0].known
        found[key] = Member(key, row, number, values, loaded)
    if unknown := [key for key in user.set if key not in known]:
        raise UserError(
            f"set.{unknown[0]}: no such setting in any row{nearest(unknown[0], _settings_of(found.values()))}"
        )
    if unknown := sorted(set(inputs.assignments()) - known):
        raise UserError(f"--set {unknown[0]}: no such setting in any row; see `tokenweight show-config`")
    return tuple(found.values())


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """The last part of each field's name, its parent where that is just a kind; whole where two would be the same."""
    wanted = {field: field.removesuffix(".kind").rpartition(".")[2] for field in fields}
    names = list(wanted.values())
    return {field: short if names.count(short) == 1 else field for field, short in wanted.items()}


def nearest(key: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" where a known key is much like it."""
    from difflib import get_close_matches

    close = get_close_matches(key, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


@dataclass(frozen=True)
class _Loader:
    """Builds the recipe of one row."""

    user: UserExperiment
    row: UserRow
    number: int
    key: str
    values: Settings
    common: Settings  # of all rows that have them
    scale: str
    inputs: Inputs
    bases: Bases

    def load(self, seed: int) -> Loaded:
        like = self.user.scale_like(self.scale)
        swept = {field: value for field, value in self.values.items() if field not in (RECIPE, SEED)}
        if twice := sorted(swept.keys() & self.inputs.assignments().keys()):
            raise UserError(f"--set {twice[0]}: is swept too; leave it out")
        own = {**self.row.set, **swept}
        texts = tuple(f"{key}={_text(value)}" for key, value in {**self.common, **self._lengths(), **own}.items())
        places = (self.row, self.inputs, self.user)  # the first that says something
        given = {
            name: next((value for place in places if (value := getattr(place, name, None))), None)
            for name in ("corpus", "base", "tokenizer")
        }
        settings = (*texts, *self.inputs.settings)
        inputs = self.inputs.model_copy(update={**given, "settings": settings})
        loaded = self._recipe(like, inputs, seed) if self.row.recipe else self._model(like, inputs)
        for field in own:
            if field not in loaded.known:
                place = "over" if field in swept else "set"
                raise UserError(
                    f"rows[{self.number}].{place}.{field}: no such setting{nearest(field, loaded.settings)}"
                    if nearest(field, loaded.settings)
                    else f"rows[{self.number}].{place}.{field}: no such setting in {self.row.recipe or 'an evaluation'}; "
                    f"`tokenweight show-config {self.row.recipe or 'table-3/uniform'} --scale {like}` lists them"
                )
        return loaded

    def _lengths(self) -> Settings:
        keys = ("evaluation.ruler.lengths_tokens", "evaluation.perplexity.lengths_tokens")
        return {key: list(self.user.lengths) for key in keys if self.user.lengths and self.row.recipe}

    def _recipe(self, like: Scale, inputs: Inputs, seed: int) -> Loaded:
        recipe = str(self.row.recipe)
        chosen = self.values.get(SEED, 0)
        if not isinstance(chosen, int) or isinstance(chosen, bool) or chosen < 0:
            raise UserError(f"seed={shown(chosen)}: not a seed; give whole numbers from 0")
        if (chosen or seed) and "/seed-" in recipe:
            raise UserError(f"recipe {recipe!r}: has a seed of its own; leave it out where there are others")
        settings, known = apply(inputs, scaled(seeded(recipe, chosen or seed), like), like)
        name = self.key if RECIPE in self.values else f"{recipe} {self.key}"
        return Loaded(build(seeded(name, seed), like, settings), settings, frozenset(known))

    def _model(self, like: Scale, inputs: Inputs) -> Loaded:
        name = self.row.base or inputs.base
        if not name:
            raise UserError(f"rows[{self.number}]: has neither a recipe nor a base; give one of them")
        return evaluation_recipe(
            self.key,
            self.bases.get(name) or name,
            like,
            inputs.model_copy(update={"base": None}),
            context_tokens=self.row.context,
            benchmarks=self.user.measured_on,
            lengths_tokens=self.user.lengths,
            limit=self.user.limit,
            backend=self.user.backend,
        )


def _choices(row: UserRow, several_recipes: bool) -> list[Settings]:
    for field in row.over:
        if field in ("name", "scale", RECIPE):
            raise UserError(f"over.{field}: cannot be swept; give several rows")
        if not row.over[field]:
            raise UserError(f"over.{field}: has no values; write for example {field}: [1, 2]")
    first = {RECIPE: row.recipe} if several_recipes and row.over else {}
    return [{**first, **dict(zip(row.over, values, strict=True))} for values in product(*row.over.values())]


def _key(row: UserRow, values: Settings, short: Mapping[str, str]) -> str:
    swept = " ".join(shown(v) if field == RECIPE else f"{short[field]}={shown(v)}" for field, v in values.items())
    named = " ".join(filter(None, (row.group, row.label)))
    made = swept if row.over else " ".join(f"{key}={shown(value)}" for key, value in row.set.items())
    return " ".join(filter(None, (named, swept if named else made))) or row.recipe or _last_part(row.base or "model")


def _last_part(base: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", base.rstrip("/").rpartition("/")[2]).strip("-.") or "model"


def _settings_of(found: Iterable[Member]) -> set[str]:
    return {key for member in found for key in member.recipes[0].settings}


def _text(value: Any) -> str:
    """As :func:`parse` reads it back."""
    return value if isinstance(value, str) and parse(value) == value else json.dumps(value)
