"""Sweeps as plans: members, what is refused before anything runs, which are the same run, what a rerun would touch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.pipeline import Build, Store
from tokenweight.recipes import Inputs
from tokenweight.recipes.execution import planned_execution
from tokenweight.recipes.sweep import Sweep, sweep_of
from tokenweight.tasks.collect import plan_target
from tokenweight.tasks.sweep import SHARED, PlannedSweep, check, chosen_measures, plan_sweep

SPARSE = "table-3/frozen-sparse"


def swept(*over: str, recipes: tuple[str, ...] = (SPARSE,), members: tuple[str, ...] = (), **kwargs: object) -> Sweep:
    inputs = kwargs.pop("inputs", Inputs())
    return sweep_of(recipes, over, members, "smoke", inputs, **kwargs)  # type: ignore[arg-type]


def planned(store: Path, *over: str, recipes: tuple[str, ...] = (SPARSE,)) -> PlannedSweep:
    return plan_sweep(swept(*over, recipes=recipes), "smoke", ("perplexity",), Store(store))


def put(store: Store, plan: PlannedSweep, label: str) -> None:
    """All that a member needs, in the store."""

    def build(work: Build) -> None:
        (work.directory / "made").write_text("x")

    for node in plan.graph_of(label, store).artifacts:
        store.get_or_build(node.identity, build)


def test_members_are_the_product_the_first_field_slowest() -> None:
    sweep = swept("weighting.kappa=0.1,0.2", "seed=0,1")
    assert [m.label for m in sweep.members] == [
        "kappa=0.1 seed=0", "kappa=0.1 seed=1", "kappa=0.2 seed=0", "kappa=0.2 seed=1",
    ]  # fmt: skip
    assert [m.loaded.recipe.weighting.kappa for m in sweep.members] == [0.1, 0.1, 0.2, 0.2]
    assert [m.loaded.recipe.seed for m in sweep.members] == [0, 1, 0, 1]
    assert len({m.loaded.recipe.name for m in sweep.members}) == 4
    assert sweep.name == "sweep-table-3-frozen-sparse-kappa-seed"
    assert sweep.fields == ("weighting.kappa", "seed")


def test_a_value_given_twice_is_one_member() -> None:
    assert [m.label for m in swept("weighting.kappa=0.2,0.20,1.0,1").members] == ["kappa=0.2", "kappa=1"]


def test_lists_are_values_and_texts_need_no_quotes() -> None:
    lengths = swept("evaluation.ruler.lengths_tokens=[1024,2048],[4096]")
    assert [m.loaded.recipe.evaluation.ruler.lengths_tokens for m in lengths.members] == [(1024, 2048), (4096,)]
    scores = swept("weighting.score=abs_pmi,ppmi")
    assert [m.loaded.recipe.weighting.score for m in scores.members] == ["abs_pmi", "ppmi"]
    assert [m.label for m in swept("scorer.kind=frozen,unfrozen").members] == ["scorer=frozen", "scorer=unfrozen"]


def test_members_one_by_one_and_several_recipes() -> None:
    explicit = swept(members=("weighting.kappa=0.2 training.steps=4", "weighting.kappa=0.4"))
    assert [m.label for m in explicit.members] == ["kappa=0.2 steps=4", "kappa=0.4"]
    both = swept("seed=0,1", recipes=("table-3/uniform", SPARSE), inputs=Inputs(settings=("training.steps=2",)))
    assert [m.loaded.recipe.name for m in both.members] == [
        "table-3/uniform seed=0", "table-3/uniform seed=1", f"{SPARSE} seed=0", f"{SPARSE} seed=1",
    ]  # fmt: skip
    assert {m.loaded.recipe.training.steps for m in both.members if m.loaded.recipe.training} == {2}


def test_a_setting_need_not_be_known_to_every_recipe() -> None:
    recipes = ("table-3/no-train-32k", "table-3/uniform")
    assert len(swept(recipes=recipes, inputs=Inputs(settings=("training.steps=2",))).members) == 2
    with pytest.raises(UserError, match=r"--set training\.stepz: no such setting"):
        swept(recipes=recipes, inputs=Inputs(settings=("training.stepz=2",)))


@pytest.mark.parametrize(
    ("over", "members", "message"),
    [
        ((), (), "nothing to sweep"),
        (("weighting.kappa",), (), "--over weighting.kappa: not of the form"),
        (("weighting.kappa=",), (), "no values"),
        (("weighting.kappa=0.1", "weighting.kappa=0.2"), (), "given twice"),
        (("weighting.kapa=0.1",), (), r"weighting.kapa: is swept, and table-3/frozen-sparse has no such setting"),
        (("weighting.kappa=0.4,4",), (), r"kappa=4 \(smoke\): weighting.kappa: Input should be less than"),
        (("weighting.lambda=0.5",), (), "has no such setting"),
        (("weighting.postprocessing=sparse,dense",), (), "needs lambda"),
        (("extension.long_tokens=2048",), (), "exceeds the model's context"),
        (("seed=a",), (), "not a seed"),
        (("scale=mini",), (), "--over scale: is chosen with --scale"),
        (("seed=0,1",), ("seed=1",), "does not go with --over"),
        ((), ("",), "--member: is empty"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_runs(
    over: tuple[str, ...], members: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        swept(*over, members=members)
    assert "\n" not in str(caught.value)


def test_what_is_swept_cannot_be_set_too() -> None:
    with pytest.raises(UserError, match=r"--set weighting\.kappa: is swept too"):
        swept("weighting.kappa=0.2", inputs=Inputs(settings=("weighting.kappa=0.4",)))
    with pytest.raises(UserError, match="has a seed of its own"):
        swept("seed=0,1", recipes=(f"{SPARSE}/seed-2",))
    with pytest.raises(UserError, match="--name My sweep: take lowercase"):
        swept("seed=0,1", name="My sweep")


def test_measures_are_named_in_one_order() -> None:
    assert chosen_measures("mmlu, ruler") == ("ruler", "mmlu")
    assert chosen_measures(None) == ("ruler", "longbench", "mmlu")
    with pytest.raises(UserError, match="--measures rulr: 'rulr' is none of"):
        chosen_measures("rulr")


def test_members_that_are_the_same_run_are_made_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, "weighting.kappa=0.4,1", recipes=(SPARSE, "table-3/unfrozen-sparse"))
    alike = [[m.label for m in members] for members in plan.runs.values() if len(members) > 1]
    assert alike == [[f"{SPARSE} kappa=1", "table-3/unfrozen-sparse kappa=1"]]  # uniform weights: no scorer
    assert len(plan.runs) == 3
    assert len({node.identity.fingerprint for node in plan.graph.trained.values()}) == 3


def test_a_member_is_the_recipe_of_a_target_that_it_equals(tmp_path: Path) -> None:
    plan = planned(tmp_path, "weighting.kappa=0.2,0.4", "seed=0,1")
    figure = plan_target("figure-5", "smoke", Inputs(), Store(tmp_path), seeds=2).graph.trained
    ours = plan.graph.trained
    assert ours[f"{SPARSE} kappa=0.4 seed=0"] == figure[SPARSE]
    assert ours[f"{SPARSE} kappa=0.4 seed=1"] == figure[f"{SPARSE}/seed-1"]
    assert ours[f"{SPARSE} kappa=0.2 seed=0"] == figure["figure-5/kappa-0.2"]


def test_shared_stages_are_there_once_and_made_first(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned(tmp_path, "weighting.kappa=0.2,0.4,0.6")
    shared = plan.shared_to_make(store)
    assert [node.stage.name for node in shared] == ["chunk", "score", "extend"]
    assert [node.stage.name for node in plan.graph.artifacts if node.stage.name in ("chunk", "score", "extend")] == [
        "chunk", "score", "extend",
    ]  # fmt: skip
    put(store, plan, "kappa=0.2")
    assert plan.shared_to_make(store) == []
    assert plan.graph_of(SHARED, store).evaluations == {SHARED: []}
    with pytest.raises(UserError, match=r"member 'kappa=0\.3': is none of this sweep's"):
        plan.graph_of("kappa=0.3", store)


def test_a_rerun_touches_only_what_is_missing(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), planned(tmp_path, "weighting.kappa=0.2,0.4,0.6")
    for label in ("kappa=0.2", "kappa=0.6"):
        put(store, plan, label)
    assert [label for label in plan.runs if plan.to_make(label, store)] == ["kappa=0.4"]
    lacking = check(plan, store, planned_execution("smoke"))
    assert {step.artifact.stage.name for step in lacking} == {"train", "evaluate"}
    assert {tuple(plan.graph.wanted_by(step.artifact)) for step in lacking} == {(f"{SPARSE} kappa=0.4",)}
