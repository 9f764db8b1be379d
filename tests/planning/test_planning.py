"""The dry run: what is shared, what makes an identity, what is left alone."""

import json
from pathlib import Path

import pytest

from tokenweight.assets import shipped_config, smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.units import Evaluate
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store
from tokenweight.planning.costs import stage_cost
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import check_execution, check_inputs, check_texts, schedule
from tokenweight.recipes import Inputs, load, load_all, names
from tokenweight.recipes.recipe import Recipe
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import plan_texts
from tokenweight.training.checkpoints import mark_complete
from tokenweight.training.stages import Score, Train

TABLE_3 = ("mmlu", "longbench", "ruler")
TABLE_3_RECIPES = [name for name in names() if name.startswith("table-3/")]


def graph(store: Store, *settings: str, recipes: list[str] | None = None, **paths: str) -> Graph:
    loaded = load_all(recipes or TABLE_3_RECIPES, "smoke", Inputs(settings=settings, **paths))
    return Planner(store).graph(loaded, TABLE_3)


def stages(planned: Graph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in planned.artifacts:
        counts[node.stage.name] = counts.get(node.stage.name, 0) + 1
    return counts


def make(store: Store, *nodes: Artifact) -> None:
    for node in nodes:
        with store.building(node.identity) as work:
            assert work is not None
            (work.directory / "made").write_text("x")


def test_the_planted_judge_is_scored_once_by_the_base_and_read_by_every_model(tmp_path: Path) -> None:
    recipes = ["table-3/uniform", "table-3/uniform/seed-1", "table-3/frozen-sparse", "table-4/ppmi"]
    planned = Planner(Store(tmp_path)).graph(load_all(recipes, "smoke"), ["planted"])
    assert stages(planned) == {"chunk": 3, "score": 2, "extend": 1, "train": 4, "evaluate": 4 * 19}
    judged = [node for node in planned.artifacts if node.stage.name == "score" and "novel777" in node.identity.name]
    assert len(judged) == 1
    leaves = [leaf for nodes in planned.evaluations.values() for leaf in nodes]
    assert all(judged[0] in leaf.parents for leaf in leaves)
    trained = [planned.trained[name].identity.name for name in recipes]
    assert [name.endswith("-seed1") for name in trained] == [False, True, False, False]


def test_a_filter_reads_more_sequences_in_two_contexts_and_a_scorer_what_is_kept(tmp_path: Path) -> None:
    uniform, kept = load_all(["table-3/uniform", "methods/longfilter"], "smoke")
    frozen = load("table-3/frozen-sparse", "smoke").model_copy(update={"name": "both", "filter": kept.filter})
    planned = Planner(Store(tmp_path)).graph([uniform, kept, frozen], [])
    assert stages(planned) == {"chunk": 2, "score": 3, "select": 1, "extend": 1, "train": 3}
    places = {artifact: place for place, artifact in enumerate(planned.artifacts)}
    assert all(places[parent] < places[artifact] for artifact in places for parent in artifact.parents)
    chosen = planned.trained["methods/longfilter"].inputs["chunks"]
    assert (
        planned.trained["both"].inputs["chunks"] == planned.trained["both"].inputs["scores"].inputs["chunks"] == chosen
    )
    windows = {role: artifact.identity.config for role, artifact in chosen.inputs.items()}
    assert windows["chunks"]["chunking"]["sequences"] == 80
    assert [windows[role]["short_tokens"] for role in ("long", "short")] == [1024, 256]
    assert stage_cost(chosen, Execution()).disk_bytes == 40 * 4096 * 4
    with pytest.raises(UserError, match=r"filter\.short_tokens \(256\) must be smaller .* a sequence have \(1024\)"):
        load("methods/longfilter", "smoke", Inputs(settings=("filter.long_tokens=2048",)))


def pmi_units(store: Store, *settings: str) -> list[Artifact]:
    recipes = load_all(["table-3/uniform"], "smoke", Inputs(settings=settings))
    return Planner(store).graph(recipes, ["pmi"]).evaluations["table-3/uniform"]


@pytest.mark.parametrize(
    "setting",
    [
        "evaluation.pmi.short_tokens=1000",
        "evaluation.pmi.stride_tokens=512",
        "evaluation.pmi.shift_k=3",
        "evaluation.pmi.scorer=frozen",
        "evaluation.pmi.documents=2",
        "evaluation.perplexity.corpus.seed=9",
        "extension.long_tokens=8192",
        "training.steps=3",
    ],
)
def test_what_changes_the_pmi_changes_its_identity(setting: str, tmp_path: Path) -> None:
    (before,), (after,) = pmi_units(Store(tmp_path)), pmi_units(Store(tmp_path), setting)
    assert before.identity.fingerprint != after.identity.fingerprint


def test_other_benchmarks_settings_are_no_part_of_the_pmi(tmp_path: Path) -> None:
    (before,), (after,) = pmi_units(Store(tmp_path)), pmi_units(Store(tmp_path), "evaluation.perplexity.documents=1")
    assert before.identity.fingerprint == after.identity.fingerprint


def test_a_frozen_scorer_of_the_pmi_is_the_base_or_another_model(tmp_path: Path) -> None:
    frozen = "evaluation.pmi.scorer=frozen"
    (base,) = pmi_units(Store(tmp_path), frozen)
    assert isinstance(base.stage, Evaluate)
    assert base.inputs["scorer"].sources["sha256"] == str(smoke_base_dir())
    for file in smoke_base_dir().iterdir():
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / file.name).write_bytes(file.read_bytes() + b" " * (file.name == "config.json"))
    other = {"kind": "local", "path": str(tmp_path / "other"), "context_tokens": 1024}
    (another,) = pmi_units(Store(tmp_path), frozen, f"evaluation.pmi.scorer_model={json.dumps(other)}")
    assert another.identity.fingerprint != base.identity.fingerprint
    assert str(tmp_path) not in str(another.identity)
    other["path"] = str(tmp_path / "nowhere")
    with pytest.raises(UserError, match="nowhere: no such directory"):
        pmi_units(Store(tmp_path), frozen, f"evaluation.pmi.scorer_model={json.dumps(other)}")


def text_directory(path: Path) -> str:
    path.mkdir()
    for i in range(12):
        (path / f"{i}.txt").write_text(f"Book {i}. " + "The miller counts his sacks. " * 2000)
    return str(path)


def test_table_3_shares_what_its_rows_share(tmp_path: Path) -> None:
    assert stages(graph(Store(tmp_path))) == {
        "chunk": 2,
        "prepare": 13 * 4 + 16 * 2,  # LongBench is cut to 1k for the base and to 4k for the rest
        "score": 1,
        "extend": 1,
        "train": 6,
        "evaluate": (13 + 16 + 57) + 7 * (13 * 4 + 16 + 57),
    }


def test_lambda_1_and_kappa_1_are_the_uniform_model(tmp_path: Path) -> None:
    planned = graph(Store(tmp_path), "weighting.lambda=1", "weighting.kappa=1")
    trained = {node.identity.fingerprint for name, node in planned.trained.items() if name != "table-3/lcde"}
    assert len(trained) == 1
    assert "score" not in stages(planned)


def test_where_a_corpus_lies_is_not_its_identity(tmp_path: Path) -> None:
    first = text_directory(tmp_path / "a")
    planned = [graph(Store(tmp_path / "s"), corpus=first)]
    Path(first).rename(tmp_path / "b")
    planned.append(graph(Store(tmp_path / "other"), corpus=str(tmp_path / "b")))
    (tmp_path / "b" / "0.txt").write_text("Another book.")
    planned.append(graph(Store(tmp_path / "s"), corpus=str(tmp_path / "b")))
    same, moved, changed = ({node.identity.fingerprint for node in plan.artifacts} for plan in planned)
    assert same == moved
    assert not {node.identity.fingerprint for node in planned[2].artifacts if node.stage.name == "train"} & same
    assert str(tmp_path) not in "".join(str(node.identity) for plan in planned for node in plan.artifacts)
    assert changed != same


@pytest.mark.parametrize(
    ("setting", "changes", "keeps"),
    [
        ("training.learning_rate=0.1", {"train", "evaluate"}, {"chunk", "score", "extend", "prepare"}),
        ("weighting.kappa=0.3", {"train", "evaluate"}, {"chunk", "score", "extend", "prepare"}),
        ("chunking.seed=7", {"chunk", "score", "train", "evaluate"}, {"extend", "prepare"}),
        ("extension.rope_theta=5e5", {"extend", "train", "evaluate"}, {"chunk", "score", "prepare"}),
        ("evaluation.ruler.samples=3", {"prepare", "evaluate"}, {"chunk", "score", "extend", "train"}),
    ],
)
def test_a_setting_changes_what_depends_on_it_and_nothing_else(
    setting: str, changes: set[str], keeps: set[str], tmp_path: Path
) -> None:
    recipe = ["table-3/frozen-sparse"]
    before, after = graph(Store(tmp_path), recipes=recipe), graph(Store(tmp_path), setting, recipes=recipe)
    of_stage = [
        {stage: {n.identity.fingerprint for n in plan.artifacts if n.stage.name == stage} for stage in changes | keeps}
        for plan in (before, after)
    ]
    assert {stage for stage in changes | keeps if of_stage[0][stage] != of_stage[1][stage]} == changes


def test_execution_is_no_part_of_an_identity() -> None:
    fields = Recipe.model_fields
    assert not {"launcher", "processes", "device", "micro_batch_sequences", "save_every_steps"} & set(fields)


def test_what_nothing_needs_is_left_alone(tmp_path: Path) -> None:
    """A finished evaluation needs neither its checkpoint nor the chunks; a missing one needs them all."""
    store = Store(tmp_path)
    planned = graph(store, recipes=["table-3/uniform"])
    make(store, *planned.evaluations["table-3/uniform"][1:])
    actions = {step.artifact.stage.name: step.action for step in schedule(planned, store) if step.action == "run"}
    assert set(actions) == {"chunk", "extend", "train", "evaluate"}  # the first unit is of MMLU: no prompts to prepare
    make(store, planned.evaluations["table-3/uniform"][0])
    assert {step.action for step in schedule(planned, store)} == {"reuse"}


def test_missing_inputs_are_all_named_before_anything_runs(tmp_path: Path) -> None:
    planned = Planner(Store(tmp_path)).graph([load("table-3/uniform", "paper")], TABLE_3)
    with pytest.raises(UserError) as caught:
        check_inputs(planned)
    for name in ("haystack", "squad", "hotpotqa"):
        assert name in str(caught.value).lower() or "PaulGraham" in str(caught.value)


def test_parity_is_the_identity_of_what_it_changes(tmp_path: Path) -> None:
    """Chunks, scores and training differ; the base, its extension and evaluations of them are shared."""
    rows = ["table-3/no-train-8k", "table-3/no-train-32k", "table-3/lcde", "table-3/uniform", "table-3/frozen-sparse"]
    paper, authors = graph(Store(tmp_path), recipes=rows), graph(Store(tmp_path), "parity=authors", recipes=rows)

    def fingerprints(planned: Graph, stage: str) -> set[str]:
        return {node.identity.fingerprint for node in planned.artifacts if node.stage.name == stage}

    for stage in ("extend", "prepare"):
        assert fingerprints(paper, stage) == fingerprints(authors, stage)
    for stage in ("score", "train"):
        assert fingerprints(paper, stage)
        assert not fingerprints(paper, stage) & fingerprints(authors, stage)
    assert len(fingerprints(paper, "chunk") & fingerprints(authors, "chunk")) == 1, "of the mixture, LCDE"
    for name in rows:
        same = paper.evaluations[name] == authors.evaluations[name]
        assert same == name.startswith("table-3/no-train"), name
    assert {work.parity for node in authors.artifacts if isinstance(work := node.stage, Train | Score)} == {"authors"}


def test_fp8_scoring_is_another_model_and_its_absence_is_no_identity(tmp_path: Path) -> None:
    recipe = ["table-3/unfrozen-sparse"]
    usual, named, fp8 = (
        graph(Store(tmp_path), *settings, recipes=recipe).trained[recipe[0]].identity
        for settings in ((), ("scorer.precision=training",), ("scorer.precision=fp8",))
    )
    assert usual == named
    assert fp8.config["scorer"]["precision"] == "fp8"
    assert fp8.fingerprint != usual.fingerprint
    assert fp8.name == usual.name.replace("unfrozen-sparse-0.2", "unfrozen-sparse-0.2-fp8-scoring")


def test_a_random_base_is_made_once_and_its_configuration_is_its_identity(tmp_path: Path) -> None:
    recipes = ["table-3/no-train-8k", "table-3/frozen-sparse", "table-3/uniform"]
    settings = ("base.layers=2", "extension.rope_theta=15300000")
    planned = graph(Store(tmp_path), *settings, recipes=recipes, base="random:llama3-8b")
    made = [node for node in planned.artifacts if node.stage.name == "initialize"]
    assert [node.identity.name for node in made] == ["llama-2x4096-random"]
    assert made[0].identity.config["config"]["num_hidden_layers"] == 2
    extended = next(node for node in planned.artifacts if node.stage.name == "extend")
    assert extended.parents == (made[0],)
    score = next(node for node in planned.artifacts if node.stage.name == "score")
    assert made[0] in score.parents
    own = tmp_path / "config.json"
    own.write_text(shipped_config("llama3-8b").read_text())
    same = graph(Store(tmp_path), *settings, recipes=recipes, base=f"random:{own}")
    assert made[0].identity.config in [
        node.identity.config for node in same.artifacts if node.stage.name == "initialize"
    ]
    for base, message in {"random": "needs a configuration", "random:llama4": "does not exist"}.items():
        with pytest.raises(UserError, match=message):
            graph(Store(tmp_path), base=base)


def test_an_execution_that_does_not_divide_a_step_is_told_in_the_plan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    three = Execution(launcher="torchrun", processes=3)
    with pytest.raises(UserError, match=r"^training\.sequences_per_step: 2 is not a multiple"):
        check_execution(schedule(graph(store), store), store, three)
    pretrained = graph(store, "training.sequences_per_step=3", "training.steps=2", base="pretrain")
    with pytest.raises(UserError, match=r"^base\.training\.sequences_per_step: 4 is not a multiple"):
        check_execution(schedule(pretrained, store), store, three)
    check_execution(schedule(graph(store), store), store, Execution(launcher="torchrun", processes=2))
    with pytest.raises(UserError, match=r"tensor_parallel: works only with backend vllm"):
        check_execution(schedule(graph(store), store), store, Execution(tensor_parallel=2))


def test_a_plan_tells_that_what_is_kept_back_leaves_nothing_to_train_on(tmp_path: Path) -> None:
    store, books = Store(tmp_path / "store"), tmp_path / "books.jsonl"
    for documents in (8, 9):
        books.write_text('{"text": "One day."}\n\n' * documents)
        planned = schedule(graph(store, corpus=str(books)), store)
        if documents == 9:
            check_texts(planned)
        else:
            with pytest.raises(
                UserError, match="has 8 documents, which leaves none to train on beside 8 for validation"
            ):
                check_texts(planned)


def test_a_cut_run_of_other_processes_is_refused_before_anything_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    planned = graph(store, "training.sequences_per_step=4", recipes=["table-3/uniform"])
    steps = schedule(planned, store)
    left = store.partial(planned.trained["table-3/uniform"].identity)
    checkpoint = left / "checkpoints" / "checkpoint-8"
    checkpoint.mkdir(parents=True)
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").write_bytes(b"x")
    two = Execution(launcher="torchrun", processes=2)
    mark_complete(checkpoint, two)
    check_execution(steps, store, two)
    four = two.model_copy(update={"processes": 4})
    with pytest.raises(
        UserError, match=r"checkpoint-8: was written with processes 2, this run has processes 4; resume"
    ):
        check_execution(steps, store, four)
    check_execution(steps, store, four.model_copy(update={"convert_checkpoints": True}))
    (left / "model").mkdir()  # trained, and cut before its record was written
    check_execution(steps, store, four)
    assert checkpoint.is_dir()


def test_many_missing_files_of_one_setting_are_one_line(tmp_path: Path) -> None:
    planned = plan_texts(["table-10"], "smoke", Inputs(mmlu=str(tmp_path)), Store(tmp_path / "store"))[0][0]
    assert len(planned.graph.missing) > 50
    with pytest.raises(UserError, match=r"^missing: evaluation.mmlu.data: .*_dev.csv, .* and 110 more missing; give "):
        check_inputs(planned.graph)
