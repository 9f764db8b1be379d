"""A stage's configuration is its identity: each field of each stage counts, no field of Execution does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenweight.pipeline import Store
from tokenweight.pipeline.stage import Artifact, Stage
from tokenweight.planning.graph import STAGES, Graph, Planner
from tokenweight.recipes import load_all
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import Execution

RECIPES = ["table-3/frozen-sparse", "table-3/unfrozen-dense", "table-7/uniform", "table-3/lcde"]
BENCHMARKS = ("ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "phrase", "planted")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return Planner(Store(tmp_path_factory.mktemp("store"))).graph(load_all(RECIPES, "smoke"), BENCHMARKS)


def example(graph: Graph, stage: type[Stage]) -> Artifact | None:
    return next((artifact for artifact in graph.artifacts if type(artifact.stage) is stage), None)


def leaves(value: Any, where: str = "") -> list[str]:
    """Dotted fields of a stage's dump, down to single values."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{where}.{key}" if where else key)] or [
            where
        ]
    if isinstance(value, list) and value:
        return [leaf for n, item in enumerate(value) for leaf in leaves(item, f"{where}.{n}")]
    return [where]


def changed(config: Any, dotted: str) -> Any:
    """The configuration with another value at a dotted field."""
    first, _, rest = dotted.partition(".")
    if isinstance(config, list):
        return [changed(item, rest) if n == int(first) else item for n, item in enumerate(config)] if first else "other"
    if isinstance(config, dict) and first in config:
        return {**config, first: changed(config[first], rest) if rest else f"other than {config[first]!r}"}
    return "other"


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_field_of_a_stage_and_every_input_is_identity(stage: type[Stage], graph: Graph) -> None:
    artifact = example(graph, stage)
    if artifact is None:
        assert stage.name == "initialize", "has no example among the recipes"
        return
    config = artifact.identity.config
    assert set(config) == {info.alias or name for name, info in stage.model_fields.items()}, "a field is left out"
    for dotted in leaves(config):
        other = type(artifact.identity)(
            stage.name, stage.version, artifact.name, changed(config, dotted), artifact.identity.inputs
        )
        assert other.fingerprint != artifact.fingerprint, dotted
    for role in artifact.inputs:
        renamed = {**artifact.identity.inputs, role: "0" * 64}
        other = type(artifact.identity)(stage.name, stage.version, artifact.name, config, renamed)
        assert other.fingerprint != artifact.fingerprint


def test_no_field_of_execution_and_no_path_is_identity(graph: Graph, tmp_path: Path) -> None:
    assert not set(Execution.model_fields) & {name for stage in STAGES for name in stage.model_fields}
    assert default_execution("smoke") != default_execution("paper")
    everything = "".join(str(artifact.identity) for artifact in graph.artifacts)
    assert str(Path(__file__).parents[2]) not in everything
    assert str(tmp_path.parent) not in everything
