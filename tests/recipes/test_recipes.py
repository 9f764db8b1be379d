from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.recipes import SCALES, Inputs, load, load_all, names
from tokenweight.recipes.schema import FilesCorpus, LocalBase, PretrainBase, Scale

GOLDEN = Path(__file__).parent / "golden-keys.txt"


def test_table_3_has_the_papers_eight_rows() -> None:
    rows = (
        "no-train-8k",
        "no-train-32k",
        "lcde",
        "uniform",
        "unfrozen-sparse",
        "unfrozen-dense",
        "frozen-sparse",
        "frozen-dense",
    )
    assert [name for name in names() if name.startswith("table-3/")] == [f"table-3/{row}" for row in rows]


def test_table_4_is_frozen_sparse_with_another_score() -> None:
    main = load("table-3/frozen-sparse", "smoke")
    for score in ("ppmi", "npmi", "sppmi", "snpmi"):
        other = load(f"table-4/{score}", "smoke")
        assert other.weighting == main.weighting.model_copy(update={"score": score})
        assert other.model_copy(update={"name": main.name, "weighting": main.weighting}) == main


def test_a_seed_changes_training_data_and_ties_and_nothing_else() -> None:
    recipe, other = load_all(["table-3/unfrozen-sparse", "table-3/unfrozen-sparse/seed-2"], "smoke")
    assert other.seed == 2
    assert other.chunking
    assert other.chunking.seed == 2
    assert recipe.chunking
    same = {"name": recipe.name, "seed": 0, "chunking": recipe.chunking}
    assert other.model_copy(update=same) == recipe
    assert load("table-3/no-train-32k/seed-1", "smoke").seed == 0
    for name in ("table-3/uniform/seed-x", "table-3/nothing/seed-1"):
        with pytest.raises(UserError, match=r"unknown; (choose one of|did you mean)"):
            load(name, "smoke")


def test_at_scale_mini_a_seed_draws_the_base_too() -> None:
    for name in ("table-3/uniform", "table-3/no-train-32k"):
        first, other = load_all([name, f"{name}/seed-2"], "mini")
        assert isinstance(other.base, PretrainBase)
        assert other.base.seed == 2
        assert other.base.model_copy(update={"seed": 0}) == first.base
    mini, older = load_all(["table-3/uniform/seed-2"], "mini")[0], load("table-3/uniform/seed-2", "mini-31m")
    assert isinstance(older.base, PretrainBase)
    assert (older.base.seed, older.seed, older.base.architecture.hidden_size) == (0, 2, 512)
    assert older.evaluation == mini.evaluation


@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_exists_at_every_scale(scale: Scale) -> None:
    assert {recipe.scale for recipe in load_all(names(), scale)} == {scale}


def test_the_papers_constants() -> None:
    recipe = load("table-3/frozen-sparse", "paper")
    assert recipe.training
    assert recipe.scorer
    assert recipe.extension
    assert (recipe.training.steps, recipe.training.sequences_per_step, recipe.training.learning_rate) == (
        240,
        128,
        2e-5,
    )
    assert (recipe.training.beta1, recipe.training.beta2, recipe.training.weight_decay) == (0.9, 0.95, 0.01)
    assert (recipe.extension.rope_theta, recipe.extension.long_tokens) == (15.3e6, 32768)
    assert (recipe.scorer.short_tokens, recipe.scorer.stride_tokens) == (8192, 6144)
    assert (recipe.weighting.postprocessing, recipe.weighting.kappa) == ("sparse", 0.4)
    assert load("table-3/unfrozen-sparse", "paper").weighting.kappa == 0.2
    assert load("table-3/frozen-dense", "paper").weighting.lambda_ == 0.75
    assert load("table-3/no-train-8k", "paper").context_tokens == 8192
    assert load("table-3/no-train-32k", "paper").training is None


def test_smoke_is_an_eighth_of_the_paper() -> None:
    smoke, paper = (load("table-3/unfrozen-dense", scale) for scale in ("smoke", "paper"))
    assert smoke.scorer
    assert paper.scorer
    assert smoke.context_tokens * 8 == paper.context_tokens
    assert smoke.scorer.stride_tokens * 8 == paper.scorer.stride_tokens
    assert [8 * n for n in smoke.evaluation.ruler.lengths_tokens] == list(paper.evaluation.ruler.lengths_tokens)
    assert smoke.weighting == paper.weighting


def test_recipes_of_one_table_differ_only_where_they_should() -> None:
    uniform, lcde = (load(f"table-3/{row}", "paper") for row in ("uniform", "lcde"))
    assert uniform.training == lcde.training
    assert uniform.corpus != lcde.corpus
    assert uniform.evaluation == lcde.evaluation


def test_every_value_has_an_origin() -> None:
    loaded = load("table-3/frozen-sparse", "paper")
    origins = {key: origin for key, _, origin in loaded.settings()}
    assert origins["training.steps"] == "Appendix B: 240 steps"
    assert origins["chunking.seed"] == "default of the schema"
    overridden = load("table-3/frozen-sparse", "paper", Inputs(settings=("training.steps=3",)))
    assert {key: origin for key, _, origin in overridden.settings()}["training.steps"] == "given by you"


def test_configuration_keys_are_stable() -> None:
    loaded = load("table-3/frozen-sparse", "smoke")
    assert "\n".join(key for key, _, _ in loaded.settings()) + "\n" == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("weighting.kappa=0", "weighting.kappa: Input should be greater than 0"),
        ("weighting.lambda=2", "weighting.lambda: Input should be less than or equal to 1"),
        ("scorer.stride_tokens=2000", "stride_tokens (2000) must be smaller than short_tokens (1024)"),
        ("scorer.short_tokens=8192", "exceeds chunking.long_tokens"),
        ("scorer.short_tokens=2048", "scorer.short_tokens (2048) exceeds the scorer's context (1024)"),
        ("training.steps=abc", "training.steps: Input should be a valid integer"),
        ("training.steps=true", "training: steps takes no true"),
        ("seed=-1", "seed: Input should be greater than or equal to 0"),
        ("seed=4294967296", "seed: Input should be less than 4294967296"),
        ("chunking.seed=-1", "chunking.seed: Input should be greater than or equal to 0"),
        ("evaluation.ruler.lengths_tokens=[]", "evaluation.ruler.lengths_tokens: is empty; give a value"),
        ("evaluation.perplexity.lengths_tokens=[1]", "evaluation.perplexity.lengths_tokens.0: Input should be greater"),
        ("weighting.score=mile", "weighting.score 'mile' reads no short context: set scorer.kind to 'unfrozen'"),
        ("name=../../evil", "--set name: no such setting"),
        ("parity=theirs", "parity: Input should be 'paper' or 'authors'"),
        ("training.stepz=3", "--set training.stepz: no such setting"),
        ("nonsense", "not of the form key=value"),
        ("training.steps=100000000000000000000", "training.steps: Input should be less than or equal to 1000000000"),
    ],
)
def test_bad_settings_are_named_in_one_line(setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_all(names(), "smoke", Inputs(settings=(setting,)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "users"),
    [
        ("table-3/uniform", ("weighting.kappa=0.2",), "postprocessing sparse alone (table-3/uniform: uniform)"),
        ("table-3/uniform", ("weighting.gamma=2", "weighting.score=focal"), "score long_ce, focal, mile, exact alone"),
        ("table-3/uniform", ("weighting.score=ppmi",), "postprocessing dense, sparse, raw alone"),
        ("table-3/frozen-sparse", ("weighting.gamma=2",), "(table-3/frozen-sparse: sparse of abs_pmi)"),
        ("table-3/frozen-sparse", ("weighting.shift_k=3",), "score sppmi, snpmi alone"),
        ("table-3/frozen-sparse", ("weighting.threshold=3",), "score exact alone"),
    ],
)
def test_a_setting_that_the_weighting_does_not_read_is_refused(
    name: str, settings: tuple[str, ...], users: str
) -> None:
    with pytest.raises(UserError, match=r"is used by .* choose that too, or leave it out") as caught:
        load(name, "smoke", Inputs(settings=settings))
    assert users in str(caught.value)


def test_a_setting_is_of_the_weighting_that_is_chosen_with_it() -> None:
    chosen = Inputs(settings=("weighting.score=sppmi", "weighting.shift_k=3"))
    assert load("table-3/frozen-sparse", "smoke", chosen).weighting.shift_k == 3


def test_enough_is_read_only_where_a_number_of_sequences_is_drawn_and_all_is_no_part_of_an_identity() -> None:
    paper, mini, asked = (
        load("table-3/lcde", scale, Inputs(settings=given)).chunking
        for scale, given in (("paper", ()), ("mini", ()), ("mini", ("chunking.read=enough",)))
    )
    assert paper
    assert mini
    assert asked
    assert (paper.read, paper.sequences, asked.read) == ("enough", 30_720, "enough")
    assert "read" not in mini.model_dump()
    for setting in ("chunking.sequences=null", "chunking.mixture=per_document"):
        with pytest.raises(UserError, match=r"^recipe .*: chunking: read 'enough' needs .* to 'all'$"):
            load("table-3/lcde", "paper", Inputs(settings=(setting,)))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UserError, match="choose one of table-3/no-train-8k"):
        load("my-own", "smoke")
    with pytest.raises(UserError, match=r"did you mean table-3/frozen-dense\?"):
        load("table-3/frozen-dens", "smoke")
    with pytest.raises(UserError, match="choose one of smoke, mini, mini-31m, paper"):
        load("table-3/uniform", "huge")  # type: ignore[arg-type]


def test_changed_steps_change_what_is_chunked() -> None:
    recipe = load("table-3/uniform", "smoke", Inputs(settings=("training.steps=5",)))
    assert recipe.chunking
    assert recipe.chunking.sequences == 10


def test_a_users_own_inputs_take_the_recipes_place(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    given = Inputs(corpus=str(tmp_path), base=str(tmp_path), mmlu=str(tmp_path))
    recipe = load("table-3/uniform", "smoke", given)
    assert isinstance(recipe.corpus, FilesCorpus)
    assert isinstance(recipe.base, LocalBase)
    assert recipe.evaluation.perplexity.corpus == recipe.corpus
    assert recipe.evaluation.mmlu.data == str(tmp_path)
    assert load("table-3/no-train-8k", "smoke", given).corpus is None


def test_a_base_can_be_trained_by_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    given = Inputs(corpus=str(tmp_path), base="pretrain", tokenizer=str(tmp_path))
    base = load("table-3/uniform", "smoke", given).base
    assert isinstance(base, PretrainBase)
    assert base.tokenizer == str(tmp_path)
    assert isinstance(base.corpus, FilesCorpus)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Inputs(corpus="nowhere"), "--corpus nowhere: does not exist"),
        (Inputs(base="nowhere"), "--base nowhere: does not exist"),
        (Inputs(tokenizer="."), "add --base pretrain"),
        (Inputs(mmlu="nowhere"), "--mmlu nowhere: does not exist"),
    ],
)
def test_missing_inputs_are_named(given: Inputs, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        load("table-3/uniform", "smoke", given)


def test_parity_is_the_papers_unless_asked_for() -> None:
    for name in names():
        assert load(name, "paper").parity == "paper"
    loaded = load("table-3/uniform", "smoke", Inputs(settings=("parity=authors",)))
    assert loaded.parity == "authors"
    shown = {key: (value, origin) for key, value, origin in loaded.settings()}
    assert shown["parity"] == ("authors", "given by you")
    paper = load("table-3/uniform", "smoke")
    assert loaded.model_copy(update={"parity": "paper"}) == paper
