"""The manifest: an experiment at a scale, and which artifact is behind each row, seed and benchmark.

With the records it is all that a report needs. It lies at `<store>/manifests/<experiment>-<scale>.json`; earlier ones
of other benchmarks or settings lie beside it, their digest in the name.
"""

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from tokenweight.errors import UserError
from tokenweight.files import write_files
from tokenweight.pipeline.experiment import Experiment, Lengths
from tokenweight.pipeline.stage import Graph
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.inputs import as_options
from tokenweight.recipes.recipe import Recipe, read_model, seeded
from tokenweight.recipes.schema import Scale

FOLDER = "manifests"
Run = tuple[str, int]  # row and seed


class StageEntry(Frozen):
    """An artifact behind a row, such as its training: its address below the store."""

    address: str
    fingerprint: str


class UnitEntry(StageEntry):
    """One (checkpoint, benchmark, task, length)."""

    unit: str  # e.g. ruler/niah_single_1/4096
    benchmark: str
    task: str
    length_tokens: PositiveInt | None = None
    n_expected: PositiveInt | None = None  # samples; None where the recipe takes all there are


class RowEntry(Frozen):
    """One row with one seed: the recipe it shows and all units of that recipe."""

    row: str
    recipe: str
    seed: int = 0
    units: tuple[UnitEntry, ...] = ()
    train: StageEntry | None = None
    failed: str | None = None  # why the last run did not make all of it


class Manifest(Frozen):
    """All that `build_report` needs to know besides the store's root."""

    version: Literal[1] = 1
    experiment: Experiment
    scale: str
    lengths: Lengths
    about: str  # what the scale's numbers are
    command: str  # that makes what is missing
    inputs: Mapping[str, str] = Field(default={})  # given by the user, by option; of paths the last part
    recipes: Mapping[str, tuple[tuple[str, Any, str], ...]] = Field(default={})  # setting, value, origin; first seed's
    rows: tuple[RowEntry, ...]
    divergences: tuple[str, ...] = ()  # where this run departs from the paper

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known, seen = {row.key: row.recipe for row in self.experiment.rows}, set[Run]()
        for entry in self.rows:
            if entry.recipe != known.get(entry.row):
                raise ValueError(
                    f"row {entry.row!r}: {self.name} has no such row of {entry.recipe!r}; use {', '.join(known)}"
                )
            if (entry.row, entry.seed) in seen:
                raise ValueError(f"row {entry.row!r}: seed {entry.seed} is given twice; keep one")
            seen.add((entry.row, entry.seed))
        return self

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def seeds(self) -> list[int]:
        return sorted({entry.seed for entry in self.rows}) or [0]

    @property
    def full_command(self) -> str:
        """With this run's inputs and seeds, as one types it where they lie."""
        words = [] if len(self.seeds) == self.experiment.seeds else ["--seeds", str(len(self.seeds))]
        words += [word for pair in as_options(self.inputs) for word in pair]
        return f"{self.command} {shlex.join(words)}".strip()

    def label(self, run: Run) -> str:
        """What a row with one seed is called: "Frozen Sparse, seed 1", or without the seed where there is one."""
        name = next(row.name for row in self.experiment.rows if row.key == run[0])
        return f"{name}, seed {run[1]}" if len(self.seeds) > 1 else name


@dataclass(frozen=True)
class ResolvedExperiment:
    """An experiment on its way: its manifest, its recipes and, once it is planned, all their artifacts."""

    manifest: Manifest
    recipes: Mapping[Run, Recipe]
    graph: Graph = field(default_factory=Graph)

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def like(self) -> Scale:
        """The named scale that the experiment's own is, or changes."""
        return next(iter(self.recipes.values())).scale

    @property
    def each_recipe(self) -> list[Recipe]:
        return list({recipe.name: recipe for recipe in self.recipes.values()}.values())


def manifest_path(store_root: Path, name: str, scale: str) -> Path:
    return store_root / FOLDER / f"{name}-{scale}.json"


def manifest_text(manifest: Manifest) -> str:
    return manifest.model_dump_json(indent=1, exclude_none=True) + "\n"


def write_manifest(manifest: Manifest, path: Path) -> Path:
    """Write it complete or not at all. Raises UserError where it cannot."""
    write_files({path: manifest_text(manifest)}, str(path), "another place")
    return path


def keep_manifest(manifest: Manifest, store_root: Path) -> None:
    """Where one of its name is there that has what this one lacks, such as other benchmarks, that stays, under its digest."""
    path = manifest_path(store_root, manifest.name, manifest.scale)
    with suppress(UserError, OSError):  # the store cannot be written, or the other not be read
        if path.is_file() and not _addresses(read_manifest(path)) <= _addresses(manifest):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            path.replace(path.with_suffix(f".{digest[:8]}.json"))
    with suppress(UserError):
        write_manifest(manifest, path)


def _addresses(manifest: Manifest) -> set[str]:
    return {unit.address for entry in manifest.rows for unit in entry.units}


def read_manifest(path: Path) -> Manifest:
    """A manifest from its file; raises UserError where it is none."""
    return read_model(Manifest, path, "a manifest of this version", "run the experiment again, or give another")


def kept_manifests(store_root: Path) -> Iterator[Manifest]:
    return map(read_manifest, sorted((store_root / FOLDER).glob("*.json")))


def with_failures(manifest: Manifest, failed: Mapping[str, str]) -> Manifest:
    """The manifest that says of rows why they failed, by the name of their recipe (with its seed: RECIPE/seed-1)."""

    rows = tuple(
        entry.model_copy(update={"failed": failed.get(seeded(entry.recipe, entry.seed))}) for entry in manifest.rows
    )
    return manifest.model_copy(update={"rows": rows})
