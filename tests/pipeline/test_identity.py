"""A stage's configuration is its identity: each field of each stage counts, no field of Execution does."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tokenweight.pipeline.experiment import PAPER_LENGTHS, Benchmarks, Column, Experiment, Lengths, Row
from tokenweight.pipeline.manifest import Manifest, RowEntry, StageEntry, keep_manifest, manifest_path, read_manifest
from tokenweight.pipeline.measures import Difference, PhraseToken, Pmi, SampleMean, TaskMean
from tokenweight.pipeline.stage import Artifact, Graph, LocalModel, Stage, replaced, value_at
from tokenweight.pipeline.store import Store, peak_memory_bytes
from tokenweight.planning.graph import STAGES, Planner, union
from tokenweight.recipes import load, load_all
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import (
    Chunking,
    EchoCorpus,
    Execution,
    MixtureCorpus,
    MixturePart,
    NovelCorpus,
    Weighting,
)
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


MMLU = SampleMean(benchmark="mmlu")
ROW = Row(key="sparse", label="Sparse", group="Frozen", recipe="table-3/frozen-sparse")
PLAIN = Experiment(name="own", rows=(ROW,), columns=(Column(key="mmlu", label="MMLU", measure=MMLU),))


def test_what_a_file_leaves_out_is_what_a_plain_table_has() -> None:
    column = PLAIN.columns[0]
    assert (ROW.shown, column.shown, column.decimals) == (True, True, 2)
    assert (PLAIN.seeds, PLAIN.own_text, PLAIN.compares_corpora, PLAIN.same_questions) == (1, False, False, True)
    assert (MMLU.chance, MMLU.tolerant) == (0, False), "guessing gives nothing unless a column says what"
    assert Pmi(benchmark="pmi", statistic="quantile").quantile == 0.5
    assert PhraseToken(benchmark="phrase").index == 0
    assert TaskMean(benchmark="longbench").border == Lengths(ruler=(1,)).longbench_split == 8192
    for wrong in ({"rows": ()}, {"seeds": 0}):
        with pytest.raises(ValidationError):
            Experiment(**{"name": "own", "rows": (ROW,)} | wrong)


def test_names_have_both_labels_and_labels_of_the_paper_are_others() -> None:
    assert (ROW.name, Row(key="a", group="-", label="A", recipe="a").name) == ("Frozen Sparse", "A")
    labels = [Row(key="a", label="A", recipe="a", paper_label=label).has_paper_label for label in ("", "A", "B")]
    assert labels == [False, False, True]
    difference = Column(key="d", label="d", measure=Difference(column="mmlu"))
    assert (difference.difference_of, PLAIN.columns[0].difference_of) == ("mmlu", None)


def test_a_benchmark_of_a_family_is_made_by_it() -> None:
    class Family:
        def member(self, task: str) -> str:
            return f"made of {task}"

    known = Benchmarks(lm_eval=Family())
    assert known["lm_eval:arc"] == "made of arc"
    for name in ("lm_eval:", "lm_eval_2", "other:arc"):
        with pytest.raises(KeyError, match=name):
            known[name]


def test_a_manifest_names_its_runs_and_is_read_as_it_was_kept(tmp_path: Path) -> None:
    def manifest(*seeds: int, recipe: str = ROW.recipe) -> Manifest:
        train = StageEntry(address="train/x", fingerprint="0")
        rows = [RowEntry(row="sparse", recipe=recipe, seed=seed, train=train) for seed in seeds]
        return Manifest(
            experiment=PLAIN, scale="smoke", lengths=Lengths(ruler=(8,)), about="", command="make", rows=tuple(rows)
        )

    one, two, none = manifest(0), manifest(0, 1), manifest()
    assert (one.label(("sparse", 0)), two.label(("sparse", 1))) == ("Frozen Sparse", "Frozen Sparse, seed 1")
    assert (one.full_command, two.full_command, none.seeds) == ("make", "make --seeds 2", [0])
    assert (one.version, RowEntry(row="sparse", recipe="a").seed) == (1, 0)
    with pytest.raises(ValidationError, match="seed 1 is given twice"):
        manifest(1, 1)
    with pytest.raises(ValidationError, match="no such row of 'other'"):
        manifest(0, recipe="other")
    keep_manifest(two, tmp_path)
    kept = manifest_path(tmp_path, "own", "smoke")
    assert kept == tmp_path / "manifests" / "own-smoke.json"
    assert read_manifest(kept) == two
    assert "null" not in kept.read_text()


def test_values_are_read_and_replaced_in_the_depth_of_a_stage() -> None:
    parts = tuple(
        MixturePart(corpus=EchoCorpus(seed=seed), share=share) for seed, share in ((1, 0.5), (2, 0.25), (3, 0.25))
    )
    changed = replaced(MixtureCorpus(parts=parts), {"parts.1.corpus.seed": 7, "parts.0.share": 0.6})
    assert [part.corpus.seed for part in changed.parts] == [1, 7, 3]  # type: ignore[union-attr]
    assert [part.share for part in changed.parts] == [0.6, 0.25, 0.25]
    assert value_at(changed, "parts.1.corpus.seed") == 7


def test_a_graph_knows_what_each_recipe_needs_and_which_are_one_run(graph: Graph) -> None:
    one, same = "table-3/frozen-sparse", "a row of the same recipe"
    graph = Graph(graph.artifacts, {**graph.evaluations, same: graph.evaluations[one]}, graph.trained, ["a corpus"])
    assert graph.runs[one] == [one, same]
    assert same not in graph.runs
    part = graph.part([one])
    made = [artifact for artifact in graph.artifacts if one in graph.wanted_by(artifact)]
    assert part.artifacts == made
    assert {artifact.stage.name for artifact in made} > {"prepare", "chunk", "train", "evaluate"}
    assert len(made) < len(graph.artifacts)
    assert (set(part.evaluations), set(part.trained), part.missing) == ({one}, {one}, ["a corpus"])
    assert graph.wanted_by(graph.trained[one]) == [one, same]
    assert graph.trained[one] != graph.trained[one].fingerprint


def test_settings_are_in_an_identity_under_the_names_that_users_give(graph: Graph) -> None:
    weighting = graph.trained["table-3/unfrozen-dense"].identity.config["weighting"]
    assert weighting["lambda"] == 0.75
    assert "lambda_" not in weighting


def test_memory_is_in_bytes() -> None:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert most <= peak_memory_bytes()["host"] <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
