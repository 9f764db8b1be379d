"""The smoke DAG of the laboratory, small: two trainings that share base, chunks, scores and prompts; two units a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tokenweight.evaluation import units
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import plan_texts, write_tables
from tokenweight.tasks.pieces import run_in_order

OUTCOMES = ("accepted", "named", "refused", "flagged", "scored 0", "made again", "false numbers", "losses")
EXECUTION = Execution(device="cpu", eval_batch_sequences=4)
UNITS = ("longbench/trec", "perplexity/validation/1024")
EXPERIMENT = """\
name: laboratory
benchmarks: [longbench, perplexity]
corpus: CORPUS
set:
  training.steps: 1
  training.sequences_per_step: 1
  training.warmup_steps: 0
  evaluation.longbench.samples: 2
  evaluation.longbench.max_new_tokens: 4
  evaluation.perplexity.lengths_tokens: [1024]
  evaluation.perplexity.documents: 2
rows:
  - {label: low, recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.3}}
  - {label: high, recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.6}}
"""


@dataclass(frozen=True)
class Laboratory:
    store: Store
    planned: ResolvedExperiment

    @property
    def graph(self) -> Graph:
        return self.planned.graph

    @cached_property
    def artifacts(self) -> list[Artifact]:
        """Those of the store, parents first."""
        return [one for one in self.graph.artifacts if self.store.path(one.identity).is_dir()]

    def path(self, artifact: Artifact) -> Path:
        return self.store.path(artifact.identity)

    def below(self, artifact: Artifact) -> set[Artifact]:
        """Everything that is made from an artifact, directly or through others."""
        found: set[Artifact] = set()
        for one in self.artifacts:
            if artifact in one.parents or found.intersection(one.parents):
                found.add(one)
        return found

    def runs(self) -> set[Artifact]:
        """What a plan would make now."""
        return {entry.artifact for entry in schedule(self.graph, self.store) if entry.action == "run"}

    def make(self) -> None:
        run_in_order(self.graph, self.store, EXECUTION)

    def table(self, out: Path) -> dict[tuple[str, str], float]:
        """The numbers that the report shows, by row and column."""
        content = json.loads(write_tables(self.planned, self.store, out, figures=False)["json"].read_text())
        return {
            (row["key"], column["key"]): cell["value"]
            for row in content["rows"]
            for column, cell in zip(content["columns"], row["cells"], strict=True)
            if cell["value"] is not None
        }


def plan(store: Store, text: str) -> ResolvedExperiment:
    ((planned,), _) = plan_texts([text], "smoke", Inputs(), store)
    return planned


def made(directory: Path) -> Laboratory:
    """Everything made once, as if the two benchmarks had no other units than UNITS."""
    (books := directory / "books").mkdir()
    text = (smoke_eval_dir() / "ruler" / "haystack.txt").read_text()
    for number in range(12):
        (books / f"{number}.txt").write_text(text[number * 4_000 :][:30_000])
    store = Store(directory / "store")
    with pytest.MonkeyPatch.context() as patch:  # only here: other tests plan in this process
        for name in ("longbench", "perplexity"):
            kind = type(units.BENCHMARKS[name])
            patch.setattr(kind, "units", lambda *given, every=kind.units: [u for u in every(*given) if u.id in UNITS])
        laboratory = Laboratory(store, plan(store, EXPERIMENT.replace("CORPUS", str(books))))
    laboratory.make()
    return laboratory
