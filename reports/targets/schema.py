"""An experiment as a file says it: rows of recipes or models, what is changed in them, what they are measured on, how it looks.

The paper's tables, a user's YAML, sweeps and `evaluate --model` are all one of these (docs/experiments.md).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import Column, Described
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.schema import SCALES, Backend, Scale

Benchmark = Literal["ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "planted"]
SWEPT_ON: tuple[Benchmark, ...] = ("ruler", "longbench", "mmlu")  # what the paper's own ablations show
NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
Settings = dict[str, Any]  # by dotted key


class RowSpec(Frozen):
    """One row, or with `over` one for each combination of its values. In a label {short} and {long} are as in Row."""

    key: str = ""  # in manifests and the paper's data; without one, its labels
    label: str = ""  # without one, by what is set
    group: str = ""  # what several rows share, left of their labels
    recipe: str | None = None  # e.g. table-3/frozen-sparse; none: the model as it is
    base: str | None = None  # in place of the experiment's
    corpus: str | None = None  # in place of the experiment's
    context: PositiveInt | None = None  # longest input of a model as it is, in tokens
    set: Settings = Field(default={})  # settings of the recipe, by the keys of show-config
    over: dict[str, list[Any]] = Field(default={})  # settings with several values each: a row for each
    rule_below: Literal["full", "partial"] | None = None  # this and the following as in Row
    fills: tuple[str, ...] | None = None
    reference: str | None = None
    shown: bool = True
    unit: str | None = None


class ColumnsOf(Frozen):
    """Columns by the name of what they show (columns.yaml), with other words."""

    of: str
    task: str = ""  # of ruler-task and longbench-category
    key: str | None = None
    label: str | None = None  # {tokens}: the column's length
    group: str | None = None
    shown: bool = True
    difference: bool = False  # less the same of the row's reference


Columns = str | ColumnsOf | Column


class ExperimentSpec(Described[RowSpec, Columns]):
    """Rows x benchmarks x seeds. Paths are relative to the file that it is read from."""

    name: str = Field(pattern=f"^{NAME}$")  # of files: lowercase letters, digits and dashes
    stub: tuple[str, ...] = ()  # headings of the label columns; none: by what the rows are called
    base: str | None = None  # directory of a model, ORG/NAME@COMMIT, pretrain, random:CONFIG
    tokenizer: str | None = None  # directory with tokenizer.json, for base pretrain or random
    corpus: str | None = None  # directory of .txt, .jsonl or .parquet
    benchmarks: tuple[Benchmark, ...] = ()  # what the rows are measured on, with the usual columns
    lengths: tuple[PositiveInt, ...] = ()  # RULER's and perplexity's, in tokens
    set: Settings = Field(default={})  # settings of all rows that have them
    scales: dict[str, Settings] = Field(default={})  # settings at a scale, by its name; `like` names another
    limit: PositiveInt | dict[str, PositiveInt] | None = None  # samples of a task at most
    backend: Backend = "hf"  # of models as they are
    command: str = ""  # that runs it, where that is not `tokenweight reproduce FILE`
    notes_of: tuple[Benchmark, ...] = ()  # benchmarks whose notes are below a table with columns of its own

    @model_validator(mode="after")
    def _known_scales(self) -> ExperimentSpec:
        for name, settings in self.scales.items():
            if name not in SCALES and settings.get("like") not in SCALES:
                raise ValueError(f"scales.{name}: is a scale of your own; say `like: smoke` (or mini, paper)")
        return self

    def scale_like(self, name: str) -> Scale:
        """The named scale that a scale's settings change; UserError for a scale that is not there."""
        like: Any = self.scales.get(name, {}).get("like", name)
        if like not in SCALES:
            raise UserError(f"scale {name!r}: unknown; choose one of {', '.join((*SCALES, *self.scales))}")
        return like  # type: ignore[no-any-return]

    def common(self, scale: str) -> Settings:
        """Settings of all rows that have them, at a scale."""
        return {key: value for key, value in {**self.scales.get(scale, {}), **self.set}.items() if key != "like"}

    @property
    def measured_on(self) -> tuple[Benchmark, ...]:
        """The benchmarks given, or usual ones: for models as they are all but pmi, which reads whole documents twice."""
        if self.benchmarks:
            return self.benchmarks
        if any(row.recipe for row in self.rows):
            return SWEPT_ON
        every: tuple[Benchmark, ...] = ("ruler", "longbench", "mmlu", "bbh")
        return every if self.backend == "vllm" else (*every, "perplexity")

    @property
    def recipes(self) -> tuple[str, ...]:
        """Names of all recipes that the rows name, each once."""
        return tuple(dict.fromkeys(row.recipe for row in self.rows if row.recipe))

    @property
    def changes_recipes(self) -> bool:
        """Whether some row's recipe may not be the one that it names."""
        return any((self.base, self.tokenizer, self.corpus, self.lengths, self.set, self.scales))
