"""Stage and Artifact: a stage's configuration is its identity (architecture: idea 1).

A stage's fields say what it computes, up to rounding; the fingerprint of its artifact is made of exactly these, the
stage's version and the fingerprints of the inputs. Devices, workers, batches and paths are never among them: they are
in `Execution`, and where raw files lie is `Artifact.sources`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel

from tokenweight.progress import Progress
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.schema import Execution

Model = TypeVar("Model", bound=BaseModel)
Inputs = Mapping[str, Path]  # of a stage, by role, where they lie on this machine


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces; TypeError or ValueError for what is not JSON's."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_digest(content: Any) -> str:
    """SHA-256 of the canonical JSON of digests or configurations, 64 hex digits."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


@dataclass(frozen=True)
class Identity:
    """What makes an artifact itself: stage and version, configuration, the fingerprints of its inputs.

    `name` is the readable part of the address; it must be a function of `config`, so that equal fingerprints
    have equal addresses.
    """

    stage: str
    version: int
    name: str
    config: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", self.name):
            raise ValueError(f"name {self.name!r} is not usable in an address")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (64 hex digits) of the canonical JSON of stage, version, config and input fingerprints."""
        parts = {"stage": self.stage, "version": self.version, "config": self.config, "inputs": self.inputs}
        return content_digest(parts)

    @property
    def address(self) -> str:
        """Where the artifact lives, relative to the store: `<stage>/<name>-<first 8 of the fingerprint>`."""
        return f"{self.stage}/{self.name}-{self.fingerprint[:8]}"


class Stage(Frozen):
    """What one stage computes. Subclasses add fields (their configuration), `label`, and `run` or `work`."""

    name: ClassVar[str]  # the stage's directory in the store
    version: ClassVar[int] = 1  # raised when a change of code changes what the stage writes
    folder: ClassVar[str] = ""  # the part of the artifact that stages downstream read: "model" of checkpoints
    work: ClassVar[str] = ""  # the function that does it ("training.run.train"), imported there: so plans load no torch

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        """Readable part of the artifact's address; a function of the configuration and the inputs."""
        raise NotImplementedError

    def short_label(self, inputs: Mapping[str, Artifact]) -> str:
        """What the labels of artifacts made from this one call it."""
        return self.label(inputs)

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        """Write the artifact's files into `out_dir`, which may hold what an interrupted run left; facts for the record."""
        module, _, name = self.work.rpartition(".")
        work: Callable[..., dict[str, Any]] = getattr(import_module(f"tokenweight.{module}"), name)
        return work(self, inputs, out_dir, execution, progress)

    def placed(self, sources: Mapping[str, str | None]) -> Self:
        """The stage with the paths of its raw files in place of their digests."""
        return replaced(self, sources)


class Source(Stage):
    name = "source"  # of what comes from outside: never made, never in the store


class LocalModel(Source):
    """A checkpoint directory by the digests of its files."""

    sha256: str

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"local-{self.sha256[:6]}"


class LocalTokenizer(LocalModel):
    """A directory with a tokenizer by the digests of the tokenizer's files, which outlive training."""

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"tokenizer-{self.sha256[:6]}"


class HubModel(Source):
    """A model of the Hugging Face hub at a pinned revision."""

    repo_id: str
    revision: str

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return self.repo_id.rpartition("/")[2]


@dataclass(frozen=True, eq=False)
class Artifact:
    """One artifact to be: the stage that makes it and the artifacts that it is made from, by role.

    `sources`: where the raw files lie whose digests are in the stage's fields, by dotted field ("corpus.path"); None
    for a file that the package ships. Not part of the identity.
    """

    stage: Stage
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    sources: Mapping[str, str | None] = field(default_factory=dict)

    @cached_property
    def identity(self) -> Identity:
        return Identity(
            stage=self.stage.name,
            version=self.stage.version,
            name=self.stage.label(self.inputs),
            config=self.stage.model_dump(mode="json", by_alias=True, warnings=False),
            inputs={role: artifact.fingerprint for role, artifact in self.inputs.items()},
        )

    @property
    def fingerprint(self) -> str:
        return self.identity.fingerprint

    @property
    def short_name(self) -> str:
        return self.stage.short_label(self.inputs)

    @property
    def address(self) -> str:
        return self.identity.address

    @property
    def is_source(self) -> bool:
        return isinstance(self.stage, Source)

    @property
    def parents(self) -> tuple[Artifact, ...]:
        """The inputs that the pipeline makes."""
        return tuple(artifact for artifact in self.inputs.values() if not artifact.is_source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@dataclass
class Graph:
    """All artifacts that some recipes need, each once, in the order in which they can be made."""

    artifacts: list[Artifact] = field(default_factory=list)
    evaluations: dict[str, list[Artifact]] = field(default_factory=dict)  # by recipe name
    trained: dict[str, Artifact] = field(default_factory=dict)  # by recipe name
    missing: list[str] = field(default_factory=list)  # inputs that are not there, by name

    @cached_property
    def _recipes(self) -> Mapping[Artifact, list[str]]:
        found = defaultdict[Artifact, list[str]](list)
        for name, leaves in self.evaluations.items():
            seen, waiting = set[Artifact](), list(leaves)
            while waiting:
                artifact = waiting.pop()
                if artifact not in seen:
                    seen.add(artifact)
                    found[artifact].append(name)
                    waiting.extend(artifact.parents)
        return found

    def wanted_by(self, artifact: Artifact) -> list[str]:
        """Names of the recipes that need an artifact, directly or through others."""
        return self._recipes.get(artifact, [])

    @cached_property
    def runs(self) -> dict[str, list[str]]:
        """Recipes that are the same run, by the first's name: a run is what its evaluations are, with all behind."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for recipe, leaves in self.evaluations.items():
            alike.setdefault(tuple(leaf.fingerprint for leaf in leaves) or (recipe,), []).append(recipe)
        return {recipes[0]: recipes for recipes in alike.values()}

    def part(self, recipes: Iterable[str]) -> Graph:
        names = dict.fromkeys(recipes)
        return Graph(
            [artifact for artifact in self.artifacts if not names.keys().isdisjoint(self.wanted_by(artifact))],
            {name: self.evaluations[name] for name in names},
            {name: self.trained[name] for name in names if name in self.trained},
            self.missing,
        )


def value_at(model: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        model = model[int(key)] if isinstance(model, tuple) else getattr(model, key)
    return model


def replaced(model: Model, values: Mapping[str, Any]) -> Model:
    """A frozen model with other values at dotted fields, e.g. {"corpus.parts.1.corpus.path": ...}."""
    for dotted, value in values.items():
        model = _replaced(model, dotted, value)
    return model


def _replaced(place: Any, dotted: str, value: Any) -> Any:
    first, _, rest = dotted.partition(".")
    if isinstance(place, tuple):
        index = int(first)
        return (*place[:index], _replaced(place[index], rest, value), *place[index + 1 :])
    return place.model_copy(update={first: _replaced(getattr(place, first), rest, value) if rest else value})
