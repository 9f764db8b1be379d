"""A stage's configuration is its identity: each field of each stage counts, no field of Execution does."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tokenweight.pipeline.experiment import PAPER_LENGTHS, Lengths
from tokenweight.pipeline.measures import SampleMean
from tokenweight.pipeline.stage import Artifact, Graph, LocalModel, Stage, replaced
from tokenweight.pipeline.store import Store, peak_memory_bytes
from tokenweight.planning.graph import STAGES, Planner, union
from tokenweight.recipes import load, load_all
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import Chunking, Execution, NovelCorpus, Weighting
from tokenweight.training.stages import Initialize, Weigh

RECIPES = ["table-3/frozen-sparse", "table-3/unfrozen-dense", "table-7/uniform", "table-3/lcde", "methods/longfilter"]
BENCHMARKS = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "phrase", "planted")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    store, recipes = Store(tmp_path_factory.mktemp("store")), load_all(RECIPES, "smoke")
    weigh = Weigh(
        weighting=Weighting(score="mile", postprocessing="raw"),
        short_tokens=64,
        stride_tokens=48,
        own_first_window=True,
    )
    weights = Planner(store).weights(weigh, NovelCorpus(), recipes[0].base, None, Chunking(long_tokens=256), "fp32")
    return union([Planner(store).graph(recipes, BENCHMARKS), weights])


def leaves(value: Any, where: str = "") -> list[str]:
    """Dotted fields of a model, down to single values."""
    if isinstance(value, BaseModel):
        return [
            leaf
            for name in value.__dict__
            for leaf in leaves(getattr(value, name), f"{where}.{name}" if where else name)
        ]
    if isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        return [leaf for n, item in enumerate(value) for leaf in leaves(item, f"{where}.{n}")]
    return [where]


@pytest.mark.parametrize(
    "stage", [stage for stage in STAGES if stage.name != "initialize"], ids=lambda stage: stage.name
)
def test_every_field_of_a_stage_and_every_input_is_identity(
    stage: type[Stage], graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = next(artifact for artifact in graph.artifacts if type(artifact.stage) is stage)
    monkeypatch.setattr(stage, "label", lambda self, inputs: "name")  # readable, of values that are none here
    before = Artifact(artifact.stage, artifact.inputs).fingerprint
    assert before == artifact.fingerprint, "neither name nor sources are identity"
    assert {field.partition(".")[0] for field in leaves(artifact.stage)} == set(stage.model_fields)
    for field in leaves(artifact.stage):
        assert Artifact(replaced(artifact.stage, {field: "another value"}), artifact.inputs).fingerprint != before, (
            field
        )
    for role in artifact.inputs:
        other = Artifact(LocalModel(sha256="0" * 64))
        assert Artifact(artifact.stage, {**artifact.inputs, role: other}).fingerprint != before, role
        less = {name: one for name, one in artifact.inputs.items() if name != role}
        assert Artifact(artifact.stage, less).fingerprint != before, role
    monkeypatch.setattr(stage, "version", stage.version + 1)
    assert Artifact(artifact.stage, artifact.inputs).fingerprint != before


def test_a_random_bases_configuration_and_seed_are_its_identity() -> None:
    values = {"model_type": "llama", "hidden_size": 8}
    made = [Artifact(stage) for stage in (
        Initialize(config=values), Initialize(config=values, seed=1), Initialize(config={**values, "hidden_size": 16}),
    )]  # fmt: skip
    assert len({artifact.fingerprint for artifact in made}) == 3


def test_no_field_of_execution_and_no_path_is_identity(graph: Graph, tmp_path: Path) -> None:
    assert not set(Execution.model_fields) & {name for stage in STAGES for name in stage.model_fields}
    assert default_execution("smoke") != default_execution("paper")
    everything = "".join(str(artifact.identity) for artifact in graph.artifacts)
    assert str(Path(__file__).parents[2]) not in everything
    assert str(tmp_path.parent) not in everything


def test_the_paper_s_lengths_are_those_of_its_scale() -> None:
    assert load("table-3/uniform", "paper").evaluation.ruler.lengths_tokens == PAPER_LENGTHS.ruler
    with pytest.raises(ValidationError, match="at least 1 item"):
        Lengths(ruler=())


def test_guessing_gives_nothing_unless_a_column_says_what() -> None:
    assert SampleMean(benchmark="mmlu").chance == 0


def test_memory_is_in_bytes() -> None:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert most <= peak_memory_bytes()["host"] <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
