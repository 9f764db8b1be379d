"""Sweeps as plans: members, what is refused before anything runs, which are the same run, what a rerun would touch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweight.commands.reproduce import sweep
from tokenweight.errors import UserError
from tokenweight.evaluation.units import offered
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import SHARED, graph_of, shared_to_make, to_make
from tokenweight.recipes import Inputs
from tokenweight.recipes.recipe import Recipe, chosen_names
from tokenweight.reports.targets.find import find_experiments, models_experiment, sweep_experiment
from tokenweight.tasks.experiments import plan_experiment, plan_texts

SPARSE = "table-3/frozen-sparse"
NOTHING = Inputs()


def swept(
    *over: str,
    recipes: tuple[str, ...] = (SPARSE,),
    explicit: tuple[str, ...] = (),
    inputs: Inputs = NOTHING,
    name: str | None = None,
) -> dict[str, Recipe]:
    """The recipes of a sweep's rows, by the rows' keys."""
    sweep = sweep_experiment(recipes, over, explicit, ("perplexity",), name)
    (resolved,) = find_experiments([sweep], "smoke", inputs)
    return {row: recipe for (row, _), recipe in resolved.recipes.items()}


def planned(root: Path, *over: str, recipes: tuple[str, ...] = (SPARSE,)) -> ResolvedExperiment:
    user = sweep_experiment(recipes, over, (), ("perplexity",), None)
    (resolved,) = find_experiments([user], "smoke")
    return plan_experiment(resolved, Store(root))


def put(store: Store, plan: ResolvedExperiment, label: str) -> None:
    """All that a member needs, in the store."""
    for node in graph_of(plan.graph, label, store).artifacts:
        with store.building(node.identity) as work:
            if work is not None:
                (work.directory / "made").write_text("x")


def test_members_are_the_product_the_first_field_slowest() -> None:
    sweep = swept("weighting.kappa=0.1,0.2", "seed=0,1")
    user = sweep_experiment([SPARSE], ["weighting.kappa=0.1,0.2", "seed=0,1"], (), ("mmlu",), None)
    assert list(sweep) == ["kappa=0.1 seed=0", "kappa=0.1 seed=1", "kappa=0.2 seed=0", "kappa=0.2 seed=1"]
    assert [recipe.weighting.kappa for recipe in sweep.values()] == [0.1, 0.1, 0.2, 0.2]
    assert [recipe.seed for recipe in sweep.values()] == [0, 1, 0, 1]
    assert len({recipe.name for recipe in sweep.values()}) == 4
    assert user.name == "sweep-table-3-frozen-sparse-kappa-seed"


def test_a_value_given_twice_is_one_member() -> None:
    assert list(swept("weighting.kappa=0.2,0.20,1.0,1")) == ["kappa=0.2", "kappa=1"]


def test_lists_are_values_and_texts_need_no_quotes() -> None:
    lengths = swept("evaluation.ruler.lengths_tokens=[1024,2048],[4096]")
    assert [recipe.evaluation.ruler.lengths_tokens for recipe in lengths.values()] == [(1024, 2048), (4096,)]
    scores = swept("weighting.score=abs_pmi,ppmi")
    assert [recipe.weighting.score for recipe in scores.values()] == ["abs_pmi", "ppmi"]
    assert list(swept("scorer.kind=frozen,unfrozen")) == ["scorer=frozen", "scorer=unfrozen"]


def test_members_one_by_one_and_several_recipes() -> None:
    explicit = swept(explicit=("weighting.kappa=0.2 training.steps=4", "weighting.kappa=0.4"))
    assert list(explicit) == ["kappa=0.2 steps=4", "kappa=0.4"]
    both = swept("seed=0,1", recipes=("table-3/uniform", SPARSE), inputs=Inputs(settings=("training.steps=2",)))
    assert [recipe.name for recipe in both.values()] == [
        "table-3/uniform seed=0", "table-3/uniform seed=1", f"{SPARSE} seed=0", f"{SPARSE} seed=1",
    ]  # fmt: skip
    assert {recipe.training.steps for recipe in both.values() if recipe.training} == {2}


def test_a_setting_need_not_be_known_to_every_recipe() -> None:
    recipes = ("table-3/no-train-32k", "table-3/uniform")
    assert len(swept(recipes=recipes, inputs=Inputs(settings=("training.steps=2",)))) == 2
    with pytest.raises(UserError, match=r"--set training\.stepz: no such setting"):
        swept(recipes=recipes, inputs=Inputs(settings=("training.stepz=2",)))


@pytest.mark.parametrize(
    ("over", "explicit", "message"),
    [
        ((), (), "nothing to sweep"),
        (("weighting.kappa",), (), "--over weighting.kappa: not of the form"),
        (("weighting.kappa=",), (), "no values"),
        (("weighting.kappa=0.1", "weighting.kappa=0.2"), (), "given twice"),
        (("weighting.kapa=0.1",), (), r"weighting.kapa: no such setting; did you mean weighting.kappa"),
        (("weighting.kappa=0.4,4",), (), r"kappa=4 \(smoke\): weighting.kappa: Input should be less than"),
        (("weighting.lambda=0.5",), (), "is used by postprocessing dense alone"),
        (("weighting.postprocessing=sparse,dense",), (), "needs lambda"),
        (("extension.long_tokens=2048",), (), "exceeds the model's context"),
        (("seed=a",), (), "seed: Input should be a valid integer"),
        (("scale=mini",), (), "over.scale: cannot be swept"),
        (("seed=0,1",), ("seed=1",), "cannot be combined with --over"),
        ((), ("",), "--member: is empty"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_runs(
    over: tuple[str, ...], explicit: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        swept(*over, explicit=explicit)
    assert "\n" not in str(caught.value)


def test_what_is_swept_cannot_be_set_too() -> None:
    with pytest.raises(UserError, match=r"--set weighting\.kappa: is swept too"):
        swept("weighting.kappa=0.2", inputs=Inputs(settings=("weighting.kappa=0.4",)))
    with pytest.raises(UserError, match="has a seed of its own"):
        swept("seed=0,1", recipes=(f"{SPARSE}/seed-2",))
    with pytest.raises(UserError, match="--name My sweep: use lowercase"):
        swept("seed=0,1", name="My sweep")


@pytest.mark.parametrize(
    ("recipes", "given", "message"),
    [
        ([SPARSE], {"over": ("weighting.kapa=1,2",)}, r"--over weighting\.kapa: no such setting"),
        ([SPARSE], {"members": ("scale=mini",)}, "--member scale: cannot be swept"),
        ([SPARSE, "table-3/unifrm"], {}, "recipe: 'table-3/unifrm' is unknown"),
        ([SPARSE], {"over": ("seed=0,1",), "name": "x" * 101}, "--name x+: use .* 100 at most"),
    ],
)
def test_a_mistake_is_named_by_its_option(recipes: list[str], given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        sweep(recipes, **given)  # type: ignore[arg-type]


def test_names_made_of_many_fields_or_a_long_one_fit_files_and_differ() -> None:
    models = [models_experiment({"m" * 120 + end: "m"}, ["mmlu"]).name for end in "ab"]
    over = [
        f"training.{field}=1,2"
        for field in ("steps", "sequences_per_step", "learning_rate", "final_learning_rate_share")
    ]
    names = {*models, sweep_experiment([SPARSE], [*over, "evaluation.perplexity.documents=1"], (), (), None).name}
    assert [len(name) for name in names] == [100] * 3
    assert models_experiment({"Our_Model": "m"}, ["mmlu"], backend="vllm").name == "evaluation-our-model-vllm"


def test_measures_are_named_in_one_order() -> None:
    assert chosen_names("--measures", "mmlu, ruler", offered("sweep")) == ("ruler", "mmlu")
    assert set(sweep_experiment([SPARSE], ["seed=0,1"], [], (), None).measured_on) == {"ruler", "longbench", "mmlu"}
    with pytest.raises(UserError, match="--measures rulr: 'rulr' is unknown; did you mean ruler"):
        chosen_names("--measures", "rulr", offered("sweep"))


def test_members_that_are_the_same_run_are_made_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, "weighting.kappa=0.4,1", recipes=(SPARSE, "table-3/unfrozen-sparse"))
    alike = [recipes for recipes in plan.graph.runs.values() if len(recipes) > 1]
    assert alike == [[f"{SPARSE} kappa=1", "table-3/unfrozen-sparse kappa=1"]]  # uniform weights: no scorer
    assert len(plan.graph.runs) == 3
    assert len({node.identity.fingerprint for node in plan.graph.trained.values()}) == 3


def test_a_member_is_the_recipe_of_a_target_that_it_equals(tmp_path: Path) -> None:
    plan = planned(tmp_path, "weighting.kappa=0.2,0.4", "seed=0,1")
    figure = plan_texts(["figure-5"], "smoke", Inputs(), Store(tmp_path), seeds=2)[0][0].graph.trained
    ours = plan.graph.trained
    assert ours[f"{SPARSE} kappa=0.4 seed=0"] == figure[SPARSE]
    assert ours[f"{SPARSE} kappa=0.4 seed=1"] == figure[f"{SPARSE}/seed-1"]
    assert ours[f"{SPARSE} kappa=0.2 seed=0"] == figure["figure-5/kappa-0.2"]


def test_shared_stages_are_there_once_and_made_first(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned(tmp_path, "weighting.kappa=0.2,0.4,0.6")
    shared = shared_to_make(plan.graph, store)
    assert [node.stage.name for node in shared] == ["chunk", "score", "extend"]
    assert [node.stage.name for node in plan.graph.artifacts if node.stage.name in ("chunk", "score", "extend")] == [
        "chunk", "score", "extend",
    ]  # fmt: skip
    put(store, plan, f"{SPARSE} kappa=0.2")
    assert shared_to_make(plan.graph, store) == []
    assert graph_of(plan.graph, SHARED, store).evaluations == {SHARED: []}
    with pytest.raises(UserError, match=r"run 'kappa=0\.3': is not in the experiment"):
        graph_of(plan.graph, "kappa=0.3", store)


def test_a_rerun_touches_only_what_is_missing(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned(tmp_path, "weighting.kappa=0.2,0.4,0.6")
    for label in (f"{SPARSE} kappa=0.2", f"{SPARSE} kappa=0.6"):
        put(store, plan, label)
    assert [label for label in plan.graph.runs if to_make(plan.graph.part([label]), store)] == [f"{SPARSE} kappa=0.4"]
    lacking = to_make(plan.graph.part([f"{SPARSE} kappa=0.4"]), store)
    assert {artifact.stage.name for artifact in lacking} == {"train", "evaluate"}
    assert {tuple(plan.graph.wanted_by(artifact)) for artifact in lacking} == {(f"{SPARSE} kappa=0.4",)}
