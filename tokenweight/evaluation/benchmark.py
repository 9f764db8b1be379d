"""What a benchmark is: units, data, identity, and the steps by which a model gives scored samples.

Each benchmark is one file or folder with a subclass of :class:`Benchmark` (a model reads texts, and all units come from
the same pass) or of :class:`~.samples.AskedBenchmark` (a model answers prompts); :mod:`.units` lists them. Light on
purpose: a plan asks benchmarks without loading any model library, so subclasses import these where a model runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from tokenweight.errors import UserError
from tokenweight.evaluation.data import Task, smoke_eval_dir
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import Row
from tokenweight.pipeline.digests import is_there
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import Measure
from tokenweight.recipes.schema import Corpus, Evaluation

ECHOED_SHARE = 0.1  # a model may now and then begin its prompt anew; a harness that leaves prompts in does so always
# What is wrong with prompts, whatever the metric: it stays when outputs are scored again.
PROMPT_FLAGS = ("double_bos", "left_truncated", "missing_bos", "prompt_echoed", "special_tokens")
version = cache(metadata.version)  # milliseconds each, and a plan asks thousands of times


@dataclass(frozen=True, order=True)
class Unit:
    """What one record holds: a benchmark's task, at a length where the benchmark has lengths."""

    benchmark: str
    task: str
    length_tokens: int | None = None

    @property
    def id(self) -> str:
        """Readable identity, e.g. `ruler/niah_single_1/4096` or `mmlu/anatomy`."""
        parts = (self.benchmark, self.task, self.length_tokens)
        return "/".join(str(part) for part in parts if part is not None)


Prepared = tuple[list[dict[str, Any]], dict[str, float]]  # prompts, and how much of the length they fill
Kept = Mapping[Unit, dict[int, Row]]  # rows by doc_id, what an interrupted run kept among them


@dataclass(frozen=True)
class UnitRun:
    """A unit to evaluate, and where its rows go."""

    unit: Unit
    # RULER, LongBench: the prompts; planted: sequences, and the frozen scorer's NLL; PMI, phrase: the frozen scorer
    prepared_dirs: tuple[Path, ...]
    out_dir: Path


@dataclass(frozen=True)
class Step:
    """New rows by unit; how many samples or texts are done, of how many (0: not known); what is complete with them."""

    rows: Mapping[Unit, list[Row]]
    done: int
    total: int = 0
    complete: Mapping[Unit, dict[str, Any]] = field(default_factory=dict)  # with notes for the unit's summary


@dataclass(frozen=True)
class HubData:
    """Data of the Hugging Face hub: where they are, one of their subsets to ask for, and the option for a local copy."""

    repo_id: str
    revision: str
    subset: str | None
    option: str

    @property
    def identity(self) -> dict[str, str]:
        return {"repo_id": self.repo_id, "revision": self.revision}


class Benchmark(ABC):
    """One benchmark. Raise the version whenever the meaning of scores changes: older samples are not reused."""

    name: str
    offered: ClassVar[Collection[str]] = ("evaluate", "sweep")  # where people choose it by name
    tasks: ClassVar[Mapping[str, Task]]
    files: ClassVar[tuple[str, ...]] = ()  # of a task, in the official layout below setting `data`
    layout: ClassVar[str] = ""  # what holds them, for people
    hub_data: ClassVar[HubData | None] = None  # that setting `data` "hub" reads
    metric_version: ClassVar[int] = 1
    metric_packages: ClassVar[tuple[str, ...]] = ()
    one_pass: ClassVar[bool] = True  # reads texts by the NLL head: backend hf alone, no outputs, units inseparable
    prompted: ClassVar[bool] = False  # its prompts are made beforehand, by `prepare`
    reads_sequences: ClassVar[bool] = False  # chunks of its settings' corpus, and the frozen scores of these
    classes_in_prompts: ClassVar[bool] = False  # stored outputs are scored again with classes that prompts alone have
    path_fields: ClassVar[tuple[str, ...]] = ("data",)  # of its settings: where its texts are
    scoring_fields: ClassVar[tuple[str, ...]] = ()  # of its settings: outputs do not depend on them
    prefix: ClassVar[str | None] = None  # of its tasks' names in lm-eval's results; None: its own name
    filtered_by: ClassVar[str] = "none"  # lm-eval's name of the filter that its answers go through
    is_family: bool = False  # FAMILY:TASK is a benchmark of its own, which `member` makes

    @abstractmethod
    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """Rows of one batch or text after the other, each step's kept in `rows` before the next is asked for.

        Each unit is complete in exactly one step. StageError: a prompt does not fit, or is of another tokenizer.
        """

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """All units for a model that reads `context_tokens`; lengths beyond that are left out."""
        return [Unit(self.name, task) for task in self.tasks]

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        """Raw local files, shipped ones included, whose content is part of the unit's identity, by the dotted field of
        `evaluation` that names them. UserError: a file is missing."""
        files = self.local_files(unit.task, self.settings(evaluation).data) if self.files else []
        return {f"{self.name}.data": files} if files else {}

    def local_files(self, task: str, data: str | None) -> list[Path]:
        """A task's files in setting `data` (None: as shipped); none of the hub, which is pinned. UserError: one is missing."""
        if data == "hub":
            return []
        root = Path(data) if data else smoke_eval_dir() / self.name
        return self.present((root / name.format(task=task) for name in self.files), ", or hub")

    def present(self, files: Iterable[Path], otherwise: str = "") -> list[Path]:
        """The files. UserError: some are missing; `otherwise`: what to give in place of them."""
        found = list(files)
        if missing := [str(file) for file in found if not is_there(file)]:
            raise UserError(f"evaluation.{self.name}.data: {', '.join(missing)} missing; give {self.layout}{otherwise}")
        return found

    def check_data(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path | None = None) -> None:
        """UserError where the user's files, which may be read hours later, are not what the benchmark reads; `tokenizer_dir`:
        of the tokenizer that prompts are made for."""
        self.raw_files(unit, evaluation)

    def samples_asked(self, evaluation: Evaluation) -> float | None:
        """Samples of a unit, where the settings say how many."""
        settings = self.settings(evaluation)
        return getattr(settings, "samples", None) or getattr(settings, "documents", None)

    def n_expected(self, evaluation: Evaluation) -> int | None:
        """Samples of each unit, where the settings say how many."""
        return None

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """How a unit's model is asked, beside its settings: versions, generation, the hub's data."""
        return {"template_version": self.tasks[unit.task].template_version}

    def scoring(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """How a unit's outputs become scores, beside its settings."""
        packages = {name: version(name) for name in self.metric_packages}
        metric = self.metric(unit.task, evaluation)
        return {"metric": metric, "metric_version": self.metric_version, "metric_packages": packages}

    def generates(self, task: str, evaluation: Evaluation) -> bool:
        """Whether a task's answers are texts."""
        return False

    def metric(self, task: str, evaluation: Evaluation) -> str:
        return self.tasks[task].metric

    def settings(self, evaluation: Evaluation) -> Any:
        """Its own settings, or its family's; None where it has none."""
        return getattr(evaluation, self.name.partition(":")[0], None)

    @property
    def asked(self) -> str:
        """What a model is asked, by name: benchmarks with the same questions are evaluated together, and asked once."""
        return self.name

    def refusal(self, evaluation: Evaluation, context_tokens: int, longest_tokens: int) -> str | None:
        """Why a model that reads `context_tokens` cannot be measured so, with the way out; None: it can.

        `longest_tokens`: what it could read, by its config.json or the user.
        """
        if self.units(evaluation, context_tokens):
            return None
        return f"reads {context_tokens} tokens, too few for {self.name}; let it read more with --lengths"

    def columns(self, column: Column, evaluation: Evaluation, context_tokens: int) -> tuple[list[Column], list[str]]:
        """What a table of models that read up to `context_tokens` shows in place of the plain column of a benchmark that
        reports do not know, and notes below it."""
        return [column], []

    def reads_shipped(self, evaluation: Evaluation) -> bool:
        """Whether it reads data that the package has."""
        settings = self.settings(evaluation)
        return any(getattr(settings, name, None) is None for name in self.path_fields)

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """The parts of `evaluation`, by field, that the unit's samples and scores depend on, and no others."""
        return {self.name: settings} if (settings := self.settings(evaluation)) else {}

    def hub(self, evaluation: Evaluation) -> HubData | None:
        """The hub's data that these settings read, if they do."""
        return self.hub_data if getattr(self.settings(evaluation), "data", None) == "hub" else None

    def corpus(self, evaluation: Evaluation) -> Corpus | None:
        """The corpus, of perplexity's settings, whose validation documents are read, if they are."""
        return None

    def signs(self, task: str, rows: Sequence[Row]) -> dict[str, bool]:
        """What in rows, fresh or scored again, looks more like a broken protocol than like a model (docs/evaluate.md)."""
        return {
            "mostly_truncated": fmean(row.truncated for row in rows) > 0.5,
            "missing_bos": any(row.bos_tokens == 0 for row in rows),
            "double_bos": any((row.bos_tokens or 0) > 1 for row in rows),
            "left_truncated": any(row.left_truncated for row in rows),
            "special_tokens": any(row.special_tokens for row in rows),
            "prompt_echoed": fmean(bool(row.echoed) for row in rows) > ECHOED_SHARE,
        }

    def summary(self, unit: Unit, rows: Sequence[Row], seconds: float, **notes: Any) -> dict[str, Any]:
        """What `summary.json` holds: n, n_expected, mean_score, shares, bos, flags, seconds, and notes."""
        signs = self.signs(unit.task, rows) if rows else {"no_samples": True}
        bos = sorted({row.bos_tokens for row in rows if row.bos_tokens is not None})  # at the start of the prompts
        how_many = "no BOS" if not bos else bos[0] if len(bos) == 1 else bos
        return {
            "n": len(rows),
            "n_expected": len(rows),
            "mean_score": fmean(row.score for row in rows) if rows else None,
            "share_truncated": fmean(row.truncated for row in rows) if rows else None,
            "share_echoed": fmean(bool(row.echoed) for row in rows) if rows else None,
            "bos": how_many if rows else None,
            "flags": sorted(name for name, is_there in signs.items() if is_there),
            "seconds": round(seconds, 3),
            **notes,
        }

    def prepare(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int) -> Prepared:
        """A unit's prompts (:mod:`.samples`). UserError: a source is missing, or too short."""
        raise ValueError(f"{unit.id}: nothing to prepare")


def columns_apart(
    column: Column, measures: Mapping[tuple[str, str], Measure], headline: tuple[str, str]
) -> list[Column]:
    """Columns in place of one, by group and label; the one that a figure shows of the benchmark keeps its key."""
    found = [
        {"key": " ".join(words).lower().replace(" ", "-"), "group": words[0], "label": words[1], "measure": measure}
        | ({"key": column.key} if words == headline else {})
        for words, measure in measures.items()
    ]
    return [column.model_copy(update=one) for one in found] or [column]
