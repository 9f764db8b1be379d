"""All targets at all scales: what is shared, what it costs, what the list says."""

from pathlib import Path

import pytest

from tokenweight.commands.plan import overview
from tokenweight.errors import UserError
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner, union
from tokenweight.recipes import SCALES, Inputs, load, load_all, names
from tokenweight.recipes.schema import Scale
from tokenweight.reports.targets import ALL, TARGETS, find, get_target
from tokenweight.reports.targets.find import find_experiments, targets_of
from tokenweight.tasks.experiments import plan_texts
from tokenweight.training.stages import Train


def plan_target(name: str, scale: str, inputs: Inputs, store: Store) -> ResolvedExperiment:
    """One target."""
    ((planned,), _) = plan_texts([name], scale, inputs, store)
    return planned


PAPER = [f"table-{n}" for n in (1, 3, 4, 5, 7, 8, 9, 10, 11)] + [f"figure-{n}" for n in (1, 2, 4, 5)]


def test_every_target_has_its_recipes() -> None:
    assert set(PAPER) <= set(targets_of(ALL))
    assert "planted" not in targets_of(ALL)
    of_targets = {recipe for name in TARGETS for recipe in get_target(name).recipes}
    assert of_targets == set(names()) - {"methods/focal", "methods/mile"}


def test_methods_changes_one_thing_a_row_and_measures_all_on_the_same(tmp_path: Path) -> None:
    planned = plan_target("methods", "smoke", Inputs(), Store(tmp_path))
    rows = {row: planned.graph.trained[recipe.name] for (row, _), recipe in planned.recipes.items()}
    assert list(rows) == ["uniform", "frozen-sparse", "unfrozen-dense", "rho-1", "long-ce", "exact", "longfilter"]
    uniform = rows.pop("uniform")
    assert {key for key, row in rows.items() if row.inputs["chunks"] != uniform.inputs["chunks"]} == {"longfilter"}
    assert {key for key, row in rows.items() if "scores" in row.inputs} == {"frozen-sparse", "rho-1"}
    weighted = {row.stage.model_dump_json(include={"weighting", "scorer"}) for row in (uniform, *rows.values())}
    assert len(weighted) == 6  # LongFilter's are uniform
    assert all(row.stage.training == uniform.stage.training for row in rows.values() if isinstance(row.stage, Train))
    for row in planned.manifest.rows:
        assert {unit.unit.partition("/")[0] for unit in row.units} == {"planted", "perplexity", "longppl", "ruler"}


@pytest.mark.parametrize("scale", SCALES)
def test_each_recipe_is_trained_once_however_many_targets_need_it(scale: Scale, tmp_path: Path) -> None:
    loaded = load_all(names(), scale)
    planned = Planner(Store(tmp_path)).graph(loaded, ())
    wanted = [each.name for each in loaded if each.training]
    trained = {node.identity.fingerprint for node in planned.trained.values()}
    assert list(planned.trained) == wanted
    assert len(trained) == len(wanted)
    scored = [node.identity.fingerprint for node in planned.artifacts if node.stage.name == "score"]
    assert len(scored) == len(set(scored)) == 8  # base; three weak ones; Phi-2; FineWeb; LongFilter's two contexts


def test_targets_share_the_artifacts_of_shared_recipes(tmp_path: Path) -> None:
    graphs = [plan_target(name, "smoke", Inputs(), Store(tmp_path)).graph for name in ("table-3", "table-5")]
    first, second = ({node.identity.fingerprint for node in graph.artifacts} for graph in graphs)
    shared = {node.identity.fingerprint for node in graphs[0].evaluations["table-3/uniform"]}
    assert shared <= first & second
    both = union(graphs)
    assert {node.identity.fingerprint for node in both.artifacts} == first | second
    assert len(both.artifacts) == len(first | second)
    assert set(both.wanted_by(graphs[0].trained["table-3/uniform"])) == {"table-3/uniform"}


def test_the_list_counts_what_the_store_has(tmp_path: Path) -> None:
    store = Store(tmp_path)
    node = Planner(store).graph([load("table-3/uniform", "smoke")], ()).trained["table-3/uniform"]

    with store.building(node.identity) as work:
        assert work is not None
        (work.directory / "made").write_text("x")
    rows = {row["name"]: row for row in overview("smoke", store)["targets"]}
    assert list(rows)[-1] == ALL
    assert list(rows).index("table-6") == list(rows).index("table-5") + 1
    assert "recipes" not in rows["table-6"]
    assert [rows[name]["in_store"] for name in ("table-3", "table-7", "figure-1", ALL)] == [1, 0, 1, 1]
    assert rows[ALL]["trained"] == 38
    others = rows.keys() - {*targets_of(ALL), ALL}
    assert others == {"planted", "ruler-tasks", "methods", "table-6"}  # none is part of the row `paper`, which says so
    assert rows[ALL]["place"] == "all of the paper but Table 6"
    assert 0 < rows[ALL]["gpu_hours"] < sum(rows[name]["gpu_hours"] for name in PAPER)


@pytest.fixture
def small_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "paper" is three targets here: planning all of them takes long."""
    monkeypatch.setattr(find, "targets_of", lambda name: ["table-1", "table-9", "table-11"] if name == ALL else [name])


@pytest.mark.usefixtures("small_paper")
def test_without_its_text_table_1_is_missing_and_the_paper_goes_on(tmp_path: Path) -> None:
    store, text = Store(tmp_path / "store"), tmp_path / "text.txt"
    (missing,) = plan_target("table-1", "paper", Inputs(), store).graph.missing
    assert "data/table-1.txt: no such file" in missing
    assert "evaluation.phrase.file=FILE" in missing
    wanted, left_out = plan_texts([ALL], "paper", Inputs(), store)
    assert [planned.name for planned in wanted] == ["table-9", "table-11"]
    assert left_out == [f"table-1 is left out: missing {missing}"]
    text.write_text("... inspired by the prints in one of Melquíades’ books ...")
    given = Inputs(settings=(f"evaluation.phrase.file={text}",))
    planned = plan_target("table-1", "paper", given, store)
    assert planned.graph.missing == []
    text.write_text(text.read_text() + " More of it.")
    changed = plan_target("table-1", "paper", given, store)
    first, second = (each.manifest.rows[0].units[0].fingerprint for each in (planned, changed))
    assert first != second
    text.write_text("Another book.")
    (missing,) = plan_target("table-1", "paper", given, store).graph.missing
    assert "does not contain 'inspired by the prints" in missing


def test_each_row_of_table_1_has_its_own_unit(tmp_path: Path) -> None:
    rows = plan_target("table-1", "smoke", Inputs(), Store(tmp_path)).manifest.rows
    assert [[unit.unit for unit in row.units] for row in rows] == [
        ["phrase/long_nll"], ["phrase/short_nll"], ["phrase/difference"],
    ]  # fmt: skip


@pytest.mark.usefixtures("small_paper")
def test_a_setting_of_several_targets_need_not_be_one_of_each(tmp_path: Path) -> None:
    store, kappa = Store(tmp_path / "store"), Inputs(settings=("weighting.kappa=0.3",))
    wanted, _ = plan_texts([ALL], "smoke", kappa, store)  # Table 1's models have no kappa
    table_9 = next(planned for planned in wanted if planned.name == "table-9")
    given = {one.name: one.weighting.kappa for one in table_9.each_recipe if "sparse" in one.name}
    assert set(given.values()) == {0.3}
    with pytest.raises(UserError, match=r"--set weighting\.kappa: is used by postprocessing sparse alone"):
        plan_target("table-1", "smoke", kappa, store)
    with pytest.raises(UserError, match=r"--set weighting\.kapa: no such setting; did you mean weighting\.kappa\?"):
        plan_texts([ALL], "smoke", Inputs(settings=("weighting.kapa=0.3",)), store)


@pytest.mark.usefixtures("small_paper")
def test_one_corpus_leaves_table_11_nothing_to_compare(tmp_path: Path) -> None:
    inputs, store = Inputs(corpus=str(tmp_path)), Store(tmp_path / "store")
    with pytest.raises(UserError, match="table-11: compares two corpora"):
        plan_target("table-11", "smoke", inputs, store)
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("A text.")
    for text in (ALL, f"{ALL}:1"):
        wanted, left_out = plan_texts([text], "smoke", inputs, store)
        assert [planned.name for planned in wanted] == ["table-1", "table-9"]
        assert left_out == ["table-11 is left out: it compares two corpora, and --corpus replaces both"]


def test_tables_say_which_models_stand_for_the_papers() -> None:
    def said(name: str, scale: Scale) -> tuple[str, ...]:
        (resolved,) = find_experiments([name], scale)
        return resolved.manifest.divergences

    for scale in ("smoke", "mini"):
        assert said("table-7", scale) == (
            "A small model of its architecture, pre-trained by the pipeline, replaces Phi-2.",
            "The context is extended by a factor of 4; the paper's by 16.",
        )
        assert said("table-5", scale) == (
            "Small models, pre-trained by the pipeline, replace the scorers Llama-3.2-1B, Llama-3.2-3B, Llama-3.1-8B.",
        )
        assert said("table-3", scale) == ()
    assert said("table-7", "paper") == said("table-5", "paper") == ()


def test_a_table_says_what_was_given_in_place_of_the_recipes_own(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("A book. " * 9)
    given = Inputs(corpus=str(tmp_path / "books"), settings=("training.steps=4",))
    planned = plan_target("table-9", "smoke", given, Store(tmp_path / "store"))
    assert planned.manifest.divergences[0] == "Run with --corpus books, --set training.steps=4."
    assert plan_target("table-9", "smoke", Inputs(), Store(tmp_path)).manifest.divergences == ()
