"""The recipes behind Tables 5, 7 and 11 and the figures: what each changes, at every scale."""

import pytest

from tokenweight.errors import UserError
from tokenweight.recipes import SCALES, Inputs, load, names
from tokenweight.recipes.recipe import Recipe
from tokenweight.recipes.schema import HubBase, HubCorpus, PretrainBase, Scale


def recipe(name: str, scale: Scale = "paper") -> Recipe:
    return load(name, scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_weak_to_strong_changes_the_scorers_model_and_nothing_else(kind: str, scale: Scale) -> None:
    main, models = recipe(f"table-3/frozen-{kind}", scale), []
    for size in ("1b", "3b", "8b"):
        weak = recipe(f"table-5/{kind}-{size}", scale)
        assert weak.scorer
        models.append(weak.scorer.model)
        same = weak.scorer.model_copy(update={"model": None})
        assert weak.model_copy(update={"name": main.name, "scorer": same}) == main
    assert len({str(model) for model in models}) == 3
    assert all(isinstance(model, HubBase if scale == "paper" else PretrainBase) for model in models)


def test_phi_2_is_extended_from_2k_by_its_own_rope_base() -> None:
    rows = {row: recipe(f"table-7/{row}") for row in ("uniform", "frozen-sparse", "no-train-2k", "no-train-32k")}
    for row in rows.values():
        assert isinstance(row.base, HubBase)
        assert (row.base.repo_id, row.base.context_tokens) == ("microsoft/phi-2", 2048)
        assert row.evaluation.ruler.lengths_tokens == (2048, 4096, 8192, 16_384, 32_768)
    assert rows["no-train-2k"].context_tokens == 2048
    assert rows["no-train-32k"].training is None
    assert rows["uniform"].extension
    assert (rows["uniform"].extension.rope_theta, rows["uniform"].extension.long_tokens) == (500_000.0, 32_768)
    scorer = rows["frozen-sparse"].scorer
    assert scorer
    for windows in (scorer, *(of for row in rows.values() for of in (row.evaluation.pmi, row.evaluation.planted))):
        assert (windows.short_tokens, windows.stride_tokens) == (2048, 1920)
    assert rows["frozen-sparse"].training == recipe("table-3/frozen-sparse").training


@pytest.mark.parametrize("scale", ["smoke", "mini"])
def test_small_scales_pretrain_a_phi(scale: Scale) -> None:
    base = recipe("table-7/frozen-dense", scale).base
    assert isinstance(base, PretrainBase)
    assert base.architecture.family == "phi"


@pytest.mark.parametrize("scale", SCALES)
def test_every_model_is_judged_on_windows_of_its_own_context(scale: Scale) -> None:
    for name in names():
        evaluation, base = recipe(name, scale).evaluation, recipe(name, scale).base
        assert evaluation.pmi.short_tokens == evaluation.planted.short_tokens == base.context_tokens, name


def test_fineweb_changes_the_data_and_nothing_else() -> None:
    for row in ("uniform", "unfrozen-sparse", "unfrozen-dense", "frozen-sparse", "frozen-dense"):
        main, other = recipe(f"table-3/{row}"), recipe(f"table-11/{row}")
        assert isinstance(other.corpus, HubCorpus)
        assert other.corpus.repo_id == "HuggingFaceFW/fineweb"
        assert other.chunking
        assert other.chunking.mixture == "per_document"
        data = {"corpus": main.corpus, "chunking": main.chunking}
        assert other.model_copy(update={"name": main.name, **data}) == main


@pytest.mark.parametrize(
    ("figure", "main", "values"),
    [
        (1, "unfrozen-dense", (0.05, 0.25, 0.5)),
        (2, "unfrozen-sparse", (0.4, 0.6, 0.8)),
        (4, "frozen-dense", (0.0, 0.25, 0.5)),
        (5, "frozen-sparse", (0.2, 0.6, 0.8)),
    ],
)
def test_points_of_a_figure_change_lambda_or_kappa_alone(figure: int, main: str, values: tuple[float, ...]) -> None:
    field = "lambda_" if "dense" in main else "kappa"
    points = [name for name in names() if name.startswith(f"figure-{figure}/")]
    assert [getattr(recipe(name).weighting, field) for name in points] == list(values)
    base = recipe(f"table-3/{main}")
    for name, value in zip(points, values, strict=True):
        changed = base.weighting.model_copy(update={field: value})
        assert recipe(name) == base.model_copy(update={"name": name, "weighting": changed})


def test_a_phi_whose_heads_cannot_be_rotated_is_refused() -> None:
    with pytest.raises(UserError, match="take heads of 80"):
        load("table-7/uniform", "smoke", Inputs(settings=("base.architecture.hidden_size=128",)))
