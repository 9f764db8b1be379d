"""What a user puts in place of a recipe's own inputs: flat values, the same for the command line and for flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from tokenweight.assets import SHIPPED_CONFIGS
from tokenweight.errors import UserError
from tokenweight.pipeline.listing import SUFFIX
from tokenweight.recipes.cited import Settings, assignments, cite, override, replace
from tokenweight.recipes.scales import of_scale
from tokenweight.recipes.schema import Frozen, Scale

_GIVEN = "given by you"


class Inputs(Frozen):
    """A user's own data, models and settings, in place of a recipe's; None keeps the recipe's own."""

    corpus: str | None = Field(
        default=None,
        description="Directory of .txt, .jsonl or .parquet files in place of the recipe's corpus; to plan or report, "
        "also a list of their digests",
    )
    base: str | None = Field(
        default=None,
        description='Checkpoint directory; ORG/NAME@COMMIT of the hub; "pretrain": a model that the pipeline '
        'trains; "random:CONFIG": random weights. '
        "Default: the scale's own model",
    )
    tokenizer: str | None = Field(
        default=None, description="Directory with tokenizer.json, for a base that is pretrain or random"
    )
    mmlu: str | None = Field(
        default=None,
        description='Directory with dev/ and test/, or "hub"; to plan or report, also a list of its digests. '
        "Default: the scale's own",
    )
    bbh: str | None = Field(
        default=None, description='Directory of the official JSON files, or "hub". Default: the scale\'s own'
    )
    longbench: str | None = Field(
        default=None, description='Directory of the official JSONL files, or "hub". Default: the scale\'s own'
    )
    haystack: str | None = Field(
        default=None,
        description="RULER's haystack: directory of .txt files, or JSON with `text`. Default: the scale's own",
    )
    squad: str | None = Field(
        default=None, description="RULER's questions: SQuAD's dev-v2.0 JSON. Default: the scale's own"
    )
    hotpotqa: str | None = Field(
        default=None, description="RULER's questions: HotpotQA's dev-distractor JSON. Default: the scale's own"
    )
    settings: tuple[str, ...] = Field(
        default=(), description="key=value of a recipe field, for example training.steps=12; repeat for more"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_not_given(cls, value: object) -> object:
        """A form of Prefect's page sends empty text."""
        return None if value == "" else value

    def assignments(self) -> dict[str, str]:
        """The `settings` as a dictionary; raises UserError for one without `=`."""
        return assignments("--set", self.settings)


def told(inputs: Inputs) -> tuple[str, ...]:
    """For below a table: what the user gave in place of the recipes' own; of an absolute path only its last part."""
    given = inputs.model_dump(exclude_none=True, exclude={"settings"})
    options = [
        *(f"--{name} {last_part(value)}" for name, value in given.items()),
        *(f"--set {key}={last_part(value)}" for key, value in inputs.assignments().items()),
    ]
    return (f"Run with {', '.join(options)}.",) if options else ()


def last_part(value: str) -> str:
    """What others may see of a path: of an absolute one the last part, of a list of digests its directory's name."""
    value = value.removesuffix(SUFFIX)  # a list of digests stands for the directory
    kind, colon, rest = value.partition(":") if value.startswith("random:") else ("", "", value)
    return f"{kind}{colon}{Path(rest).name if Path(rest).is_absolute() else rest}"


def apply(inputs: Inputs, settings: Settings, scale: Scale) -> tuple[Settings, set[str]]:
    """`settings` with the user's inputs in place, and which of the user's keys this recipe knows."""
    changes: Settings = {}
    if inputs.corpus:
        path = _existing("--corpus", inputs.corpus)
        keys = ["evaluation.perplexity.corpus", *(["corpus"] if "training.steps" in settings else [])]
        changes |= cite(_GIVEN, {key: _read_from(path, _subtree(settings, key)) for key in keys})
        for key in ("base.corpus", "scorer.model.corpus"):  # of models that the pipeline pre-trains on files
            trained_on = _subtree(settings, key)
            if trained_on.get("kind") in ("files", "mixture"):
                changes |= cite(_GIVEN, {key: _read_from(path, trained_on)})
    if inputs.base:
        changes |= cite(_GIVEN, {"base": _base(inputs, settings, scale)})
    elif inputs.tokenizer:
        raise UserError("--tokenizer: belongs to a base that the pipeline makes; add --base pretrain or random:CONFIG")
    for field in ("mmlu", "bbh", "longbench"):
        if value := getattr(inputs, field):
            path = value if value == "hub" else _existing(f"--{field}", value)
            changes |= cite(_GIVEN, {f"evaluation.{field}.data": path})
    for field in ("haystack", "squad", "hotpotqa"):
        if value := getattr(inputs, field):
            changes |= cite(_GIVEN, {f"evaluation.ruler.{field}": _existing(f"--{field}", value)})
    settings, known = override(replace(settings, changes), inputs.assignments())
    return _enough_sequences(settings, known), known


def _enough_sequences(settings: Settings, given: set[str]) -> Settings:
    """A recipe that chunks what its steps read goes on doing so when the steps are changed."""
    steps, batch = settings.get("training.steps"), settings.get("training.sequences_per_step")
    if "chunking.sequences" not in settings or "chunking.sequences" in given or not steps or not batch:
        return settings
    if not given & {"training.steps", "training.sequences_per_step"}:
        return settings
    if not all(isinstance(value, int) and value > 0 for value in (steps.value, batch.value)):
        return settings  # the schema names what is wrong
    return replace(settings, cite("what the steps read", {"chunking.sequences": steps.value * batch.value}))


def _base(inputs: Inputs, settings: Settings, scale: Scale) -> dict[str, object]:
    if inputs.base == "pretrain":
        if scale == "paper":
            raise UserError("--base pretrain: the paper extends a published model; choose scale smoke or mini")
        known = (
            _subtree(settings, "base") if settings["base.kind"].value == "pretrain" else of_scale("smoke")["pretrain"]
        )
        corpus = known.get("corpus", _subtree(settings, "evaluation.perplexity.corpus"))
        if inputs.corpus:
            corpus = _read_from(_existing("--corpus", inputs.corpus), corpus)  # type: ignore[arg-type]
        tokenizer = _tokenizer(inputs) if inputs.tokenizer else known.get("tokenizer")
        return {**known, "corpus": corpus, "tokenizer": tokenizer}
    context_tokens = settings["base.context_tokens"].value
    if inputs.base == "random" or (inputs.base or "").startswith("random:"):
        config = (inputs.base or "").partition(":")[2]
        if not config:
            raise UserError(f"--base random: of which model? Write random:{SHIPPED_CONFIGS[0]} or random:CONFIG.JSON")
        config = config if config in SHIPPED_CONFIGS else _existing("--base random:", config)
        return {"kind": "random", "config": config, "tokenizer": _tokenizer(inputs), "context_tokens": context_tokens}
    if inputs.tokenizer:
        raise UserError("--tokenizer: a checkpoint directory has its own; leave it out")
    repo_id, at, revision = (inputs.base or "").rpartition("@")
    if at and not Path(inputs.base or "").exists():
        return {"kind": "hub", "repo_id": repo_id, "revision": revision, "context_tokens": context_tokens}
    path = _existing("--base", inputs.base or "")
    if not (Path(path) / "config.json").is_file():
        raise UserError(f"--base {inputs.base}: no config.json there; give a checkpoint directory of transformers")
    return {"kind": "local", "path": path, "context_tokens": context_tokens}


def _read_from(path: str, known: dict[str, object]) -> dict[str, object]:
    """A directory of files in place of a corpus; of a mixture in place of its files, and only of them."""
    if known.get("kind") == "mixture":
        parts: tuple[dict[str, Any], ...] = known["parts"]  # type: ignore[assignment]
        own = tuple(
            {**part, "corpus": _read_from(path, part["corpus"])} if part["corpus"]["kind"] == "files" else part
            for part in parts
        )
        return {**known, "parts": own}
    settings = known if known.get("kind") == "files" else {"kind": "files"}
    return {**settings, "path": path}


def _tokenizer(inputs: Inputs) -> str | None:
    tokenizer = _existing("--tokenizer", inputs.tokenizer) if inputs.tokenizer else None
    if tokenizer and not (Path(tokenizer) / "tokenizer.json").is_file():
        raise UserError(f"--tokenizer {inputs.tokenizer}: no tokenizer.json there; give a directory that has one")
    return tokenizer


def _subtree(settings: Settings, key: str) -> dict[str, object]:
    tree: dict[str, object] = {}
    for name, cited in settings.items():
        if name.startswith(f"{key}."):
            *parents, leaf = name.removeprefix(f"{key}.").split(".")
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})  # type: ignore[assignment]
            place[leaf] = cited.value
    return tree


def _existing(option: str, path: str) -> str:
    if not Path(path).exists():
        raise UserError(f"{option} {path}: does not exist; give the path of an existing file or directory")
    return str(Path(path).absolute() if path.endswith(SUFFIX) else Path(path).resolve())  # a link keeps its suffix
