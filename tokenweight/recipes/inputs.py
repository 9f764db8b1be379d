"""What a user puts in place of a recipe's own inputs, flat, the same for the command line and for flows; recipes with it."""

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError, field_validator

from tokenweight.assets import SHIPPED_CONFIGS
from tokenweight.errors import UserError, choose
from tokenweight.files import LISTING_SUFFIX
from tokenweight.recipes.corpora import MOST
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.recipe import (
    GIVEN,
    Recipe,
    Settings,
    assignments,
    build,
    drawn,
    nested,
    of_scale,
    override,
    refusal,
    replace,
    scaled,
    shown,
    what_is_wrong,
)
from tokenweight.recipes.schema import SCALES, Evaluation, Ruler, Scale, Seed

_STEPS = ("training.steps", "training.sequences_per_step")
_DATA = {name: f"evaluation.{name}.data" for name in Evaluation.model_fields}  # of those that Inputs has
_DATA |= {name: f"evaluation.ruler.{name}" for name in Ruler.model_fields}
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")


def longest_input(config: Mapping[str, Any]) -> int | None:
    """The longest input in tokens that a model's config.json names, of a model of several parts that of its text."""
    for values in (config, config.get("text_config") or {}):
        for field in _CONTEXT_FIELDS:
            if isinstance(values.get(field), int) and values[field] > 0:
                return int(values[field])
    return None


def context_of(config: Mapping[str, Any], wanted: int | None, model: str, option: str) -> int:
    """The context in tokens to read with: what is `wanted` by an `option`, where a config.json allows it; else what it says."""
    own, parts = longest_input(config), config.get("text_config") or config
    rope = parts.get("rope_scaling") or parts.get("rope_parameters") or {}
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if own is None:
        if wanted:
            return wanted
        raise UserError(f"{model}: config.json does not say how long its input may be; give {option.strip()} TOKENS")
    # Scaled positions are written both ways: with the context before it, and with the one after it.
    scaled = own * factor if isinstance(factor, int | float) and factor > 1 and kind != "llama3" else own
    if not wanted and scaled > own and kind in ("linear", "dynamic"):
        raise UserError(
            f"{model}: config.json has {own} positions and rope_scaling {kind} by {factor:g}, which may or may not "
            f"be counted in them; give {option}{own} or {int(scaled)}"
        )
    if wanted and wanted > scaled:
        raise UserError(
            f"{option}{wanted}: config.json of {model.rpartition(' ')[2]} says {int(scaled)} tokens; give at most that, "
            "or correct config.json where it is wrong"
        )
    return wanted or own


class Inputs(Frozen):
    """A user's own data, models and settings (options.toml), in place of a recipe's; None keeps the recipe's own."""

    corpus: str | None = None
    base: str | None = None
    tokenizer: str | None = None
    mmlu: str | None = None
    bbh: str | None = None
    longbench: str | None = None
    haystack: str | None = None
    squad: str | None = None
    hotpotqa: str | None = None
    settings: tuple[str, ...] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_not_given(cls, value: object) -> object:
        """A form of Prefect's page sends empty text."""
        return None if value == "" else value

    def assignments(self) -> dict[str, str]:
        return assignments("--set", self.settings)


def load(name: str, scale: Scale, inputs: Inputs | None = None) -> Recipe:
    """One recipe by name; raises UserError as `load_all` does."""
    return load_all([name], scale, inputs)[0]


def load_all(wanted: Iterable[str], scale: Scale, inputs: Inputs | None = None) -> list[Recipe]:
    """Recipes by name; raises UserError for an unknown name or scale, and for a setting that none of them knows.

    A name may end in /seed-K: the recipe on other training sequences in another order, with other random ties.
    """
    if scale not in SCALES:
        raise UserError(f"scale {scale!r}: unknown{choose(scale, SCALES)}")
    inputs = inputs or Inputs()
    recipes = [build(name, scale, apply(inputs, scaled(name, scale), scale)) for name in wanted]
    check_settings(recipes, inputs)
    return recipes


def check_settings(recipes: list[Recipe], inputs: Inputs) -> None:
    """Raise UserError for a setting of the user's that none of the recipes knows."""
    unknown = sorted(key for key in inputs.assignments() if not any(recipe.has_given(key) for recipe in recipes))
    if unknown and recipes:
        raise UserError(f"--set {unknown[0]}: {refusal(unknown[0], recipes)}")


def given_by(inputs: Inputs) -> dict[str, str]:
    """What the user gave in place of the recipes' own, by option, "set KEY" for a setting; of paths the last part."""
    given = inputs.model_dump(exclude_none=True, exclude={"settings"})
    given |= {f"set {key}": value for key, value in inputs.assignments().items()}
    return {name: without_places(value) for name, value in given.items()}


def as_options(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """As one types it: ("--corpus", "books"), ("--set", "training.steps=12")."""
    pairs = ((name.partition("set "), value) for name, value in given.items())
    return [("--set", f"{key}={value}") if key else (f"--{name}", value) for (name, _, key), value in pairs]


def without_places(value: Any) -> Any:
    """A setting as others may see it: of absolute paths the last part, of a list of digests its directory's name."""
    if isinstance(value, dict):
        return {key: without_places(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_places(part) for part in value]
    if not isinstance(value, str):
        return value
    kind, colon, rest = value.partition(":") if value.startswith("random:") else ("", "", value)
    rest = rest.removesuffix(LISTING_SUFFIX)  # a list of digests takes the place of the directory
    return f"{kind}{colon}{Path(rest).name if Path(rest).is_absolute() else rest}"


def worded(value: Any) -> str:
    """A setting as labels and commands have it."""
    return shown(without_places(value))


def apply(inputs: Inputs, settings: Settings, scale: Scale) -> Settings:
    """`settings` with the user's inputs in place; whether all of them have one is judged by `check_settings`."""
    changes: dict[str, Any] = {}
    own = inputs.assignments()
    if "seed" in own:  # as /seed-K behind a recipe's name
        try:
            seed = TypeAdapter(Seed).validate_strings(own["seed"])
        except ValidationError as error:
            raise UserError(f"--set seed: {what_is_wrong(error.errors()[0])}") from None
        settings = replace(settings, f"seed {seed}", drawn(seed, scale, settings))
    if inputs.corpus:
        path = _existing("--corpus", inputs.corpus)
        for key in ("corpus", "evaluation.perplexity.corpus", "base.corpus", "scorer.model.corpus"):
            known, pretrains = nested(settings, f"{key}."), key in ("base.corpus", "scorer.model.corpus")
            if known and (not pretrains or known["kind"] in ("files", "mixture")):  # not what is trained on the novel
                changes[key] = _read_from(path, known)
    if inputs.base:
        changes["base"] = _base(inputs, settings, scale)
    elif inputs.tokenizer:
        raise UserError("--tokenizer: is of a base that the pipeline makes; add --base pretrain or random:CONFIG")
    for field, key in _DATA.items():
        if value := getattr(inputs, field, None):
            changes[key] = value if value == "hub" and key.endswith(".data") else _existing(f"--{field}", value)
    settings = override(replace(settings, GIVEN, changes), own)
    if not own.keys().isdisjoint(_STEPS) and "chunking.sequences" in settings.keys() - own:  # chunk what the steps read
        counts = [settings[key].value for key in _STEPS if key in settings]
        are_counts = all(isinstance(n, int) and 0 < n <= MOST for n in counts)  # else the schema names what is wrong
        if len(counts) == 2 and are_counts:
            settings = replace(settings, "what the steps read", {"chunking.sequences": prod(counts)})
    return settings


def _base(inputs: Inputs, settings: Settings, scale: Scale) -> dict[str, Any]:
    base = inputs.base or ""
    kind, _, config = base.partition(":")
    tokenizer = _existing("--tokenizer", inputs.tokenizer) if inputs.tokenizer else None
    if kind not in ("pretrain", "random") and tokenizer:
        raise UserError("--tokenizer: a checkpoint directory has its own; leave it out")
    if tokenizer and not (Path(tokenizer) / "tokenizer.json").is_file():
        raise UserError(f"--tokenizer {inputs.tokenizer}: no tokenizer.json there; give a directory that has one")
    if base == "pretrain":
        if scale == "paper":
            raise UserError("--base pretrain: the paper extends a published model; choose scale smoke or mini")
        is_one = settings["base.kind"].value == "pretrain"
        known = nested(settings, "base.") if is_one else of_scale("smoke")["pretrain"]
        corpus = known.get("corpus", nested(settings, "evaluation.perplexity.corpus."))
        if inputs.corpus:
            corpus = _read_from(_existing("--corpus", inputs.corpus), corpus)
        return {**known, "corpus": corpus, "tokenizer": tokenizer or known.get("tokenizer")}
    context = {"context_tokens": settings["base.context_tokens"].value}
    if kind == "random":
        if not config:
            raise UserError(
                f"--base random: needs a configuration; write random:{SHIPPED_CONFIGS[0]} or random:CONFIG.JSON"
            )
        config = config if config in SHIPPED_CONFIGS else _existing("--base random:", config)
        return {"kind": "random", "config": config, "tokenizer": tokenizer, **context}
    repo_id, at, revision = base.rpartition("@")
    if at and not Path(base).exists():
        return {"kind": "hub", "repo_id": repo_id, "revision": revision, **context}
    path = _existing("--base", base)
    return {"kind": "local", "path": path, **context}


def _read_from(path: str, known: dict[str, Any]) -> dict[str, Any]:
    """A directory of files in place of a corpus; of a mixture in place of its files, and only of them."""
    if known.get("kind") == "mixture":
        own = [
            {**part, "corpus": _read_from(path, part["corpus"])} if part["corpus"]["kind"] == "files" else part
            for part in known["parts"]
        ]
        return {**known, "parts": own}
    settings = known if known.get("kind") == "files" else {"kind": "files"}
    return {**settings, "path": path}


def _existing(option: str, path: str) -> str:
    if not Path(path).exists():
        raise UserError(f"{option} {path}: does not exist; give the path of an existing file or directory")
    return absolute(Path(path))


def absolute(path: Path) -> str:
    """As processes in other directories find it; a link to a list of digests keeps its suffix."""
    return str(path.absolute() if path.suffix == LISTING_SUFFIX else path.resolve())
