"""A user's own experiment: what a file means, and that a mistake in it is one line with its place."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.reports.targets.find import find_experiments
from tokenweight.tasks.experiments import plan_experiment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
PLAIN = """\
name: mine
benchmarks: [mmlu]
set: {training.learning_rate: 1e-5}
rows:
  - {label: sparse, recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.3}}
  - {label: uniform, group: off, recipe: table-3/uniform}
baseline: off uniform
seeds: 2
scales:
  smoke: {training.steps: 4}
  tiny: {like: smoke, training.steps: 2}
"""


def found(text: str, scale: str = "smoke", **given: object) -> ResolvedExperiment:
    (resolved,) = find_experiments([text], scale, **given)  # type: ignore[arg-type]
    return resolved


def test_rows_scales_seeds_and_words_are_what_the_file_says() -> None:
    mine = found(PLAIN)
    assert mine.manifest.experiment.baseline == "off uniform"
    assert [(row.group, row.label) for row in mine.manifest.experiment.rows] == [("", "sparse"), ("off", "uniform")]
    assert mine.manifest.experiment.benchmarks == {"mmlu"}
    assert mine.manifest.seeds == [0, 1]
    trained = {key: recipe.training for key, recipe in mine.recipes.items()}
    assert {(t.steps, t.learning_rate) for t in trained.values() if t} == {(4, 1e-5)}
    assert mine.recipes["sparse", 0].weighting.kappa == 0.3
    assert [mine.recipes["sparse", seed].seed for seed in (0, 1)] == [0, 1]
    said = json.dumps(mine.manifest.model_dump(mode="json"))
    assert "Set for all rows: training.steps 4, training.learning_rate 1e-05." in said
    assert "Set for sparse: weighting.kappa 0.3." in said
    assert found(PLAIN, "tiny").recipes["sparse", 0].training.steps == 2  # type: ignore[union-attr]
    given = found(PLAIN, inputs=Inputs(settings=("training.steps=7",)), seeds=1)
    assert given.recipes["sparse", 0].training.steps == 7  # type: ignore[union-attr]


def test_what_is_set_for_all_rows_is_for_those_that_have_it() -> None:
    """Trained rows have steps; a model as it is, in the same table, has none."""
    mixed = found(PLAIN.replace("baseline", f"  - {{label: as it is, base: {smoke_base_dir()}}}\nbaseline"))
    steps = {key: recipe.training and recipe.training.steps for (key, _), recipe in mixed.recipes.items()}
    assert steps == {"sparse": 4, "off uniform": 4, "as it is": None}


def test_a_row_that_equals_a_recipe_is_that_recipe(tmp_path: Path) -> None:
    text = "name: mine\nbenchmarks: [mmlu]\nrows: [{recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.2}}]"
    ours = plan_experiment(found(text), Store(tmp_path)).manifest
    figure = plan_experiment(found("figure-5"), Store(tmp_path)).manifest
    papers = {unit for entry in figure.rows if entry.row == "kappa-0.2" for unit in entry.units}
    assert set(ours.rows[0].units) <= papers


def test_over_makes_a_row_for_each_combination() -> None:
    text = "name: mine\nrows:\n  - recipe: table-3/frozen-sparse\n    over: {weighting.kappa: [0.2, 1.0], seed: [0, 1]}"
    mine = found(text)
    assert [row.key for row in mine.manifest.experiment.rows] == [
        "kappa=0.2 seed=0", "kappa=0.2 seed=1", "kappa=1 seed=0", "kappa=1 seed=1",
    ]  # fmt: skip
    assert mine.manifest.experiment.stub == ("κ", "seed")
    assert mine.manifest.experiment.figure is not None
    assert mine.manifest.experiment.benchmarks == {"ruler", "longbench", "mmlu"}


def test_a_seed_in_a_file_or_on_the_command_line_draws_what_one_behind_a_recipe_does() -> None:
    def recipe(row: str, *settings: str) -> dict[str, object]:
        text = f"name: mine\nbenchmarks: [mmlu]\nrows: [{{recipe: table-3/uniform{row}}}]\n"
        (only,) = found(text, "mini", inputs=Inputs(settings=settings)).each_recipe
        return only.model_dump(exclude={"name"})

    named = recipe("/seed-1")
    ways = [recipe(", set: {seed: 1}"), recipe(", over: {seed: [1]}"), recipe("", "seed=1")]
    assert (named["seed"], named["chunking"]["seed"], named["base"]["seed"]) == (1, 1, 1)  # type: ignore[index]
    assert ways == [named] * 3
    assert recipe(", set: {seed: 1, chunking.seed: 2}")["chunking"]["seed"] == 2  # type: ignore[index]
    over = "name: mine\nbenchmarks: [mmlu]\nseeds: 2\nrows: [{recipe: table-3/uniform, over: {seed: [0, 1]}}]\n"
    with pytest.raises(
        UserError, match=r"line 4, rows\[0\]\.over\.seed: recipe 'table-3/uniform' has a seed of its own"
    ):
        found(over)


def test_paths_that_end_alike_are_told_apart(tmp_path: Path) -> None:
    """A row is called by a path's last part; two that would have one name have the whole."""
    texts = [tmp_path / place for place in ("a/h.txt", "b/h.txt", "c.txt")]
    for text in texts:
        text.parent.mkdir(exist_ok=True)
        text.write_text("A text.")
    over = json.dumps({"evaluation.ruler.haystack": [str(text) for text in texts]})
    own = found(f"name: mine\nrows: [{{recipe: table-3/uniform, over: {over}}}]").manifest.experiment
    names = [str(texts[0]), str(texts[1]), "c.txt"]
    assert [(row.key, row.label) for row in own.rows] == [(f"haystack={name}", f"haystack = {name}") for name in names]
    assert own.figure is not None
    assert [value["haystack"] for value in own.figure.values.values()] == names


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_lack_nothing(file: Path, tmp_path: Path) -> None:
    planned = plan_experiment(found(str(file)), Store(tmp_path))
    assert planned.name == file.stem
    assert planned.graph.missing == []
    assert planned.manifest.command == f"tokenweight reproduce {file.name} --scale smoke"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "texts").mkdir(parents=True)
    for number in range(12):
        (tmp_path / "here" / "texts" / f"{number}.txt").write_text("A text.")
    (tmp_path / "here" / "mine.yaml").write_text(PLAIN + "corpus: texts\n")
    monkeypatch.chdir(tmp_path)
    recipe = found("here/mine.yaml").recipes["sparse", 0]
    assert recipe.corpus is not None
    assert recipe.corpus.path == str(tmp_path / "here" / "texts")  # type: ignore[union-attr]


def test_a_weighting_of_one_s_own_is_its_name_and_its_contents(tmp_path: Path) -> None:
    def trained(folder: str, code: str) -> Artifact:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(code)
        row = "{recipe: table-3/frozen-sparse, set: {weighting.score: own.py:mine}}"
        (tmp_path / folder / "mine.yaml").write_text(f"name: mine\nbenchmarks: [mmlu]\nrows: [{row}]\n")
        planned = plan_experiment(found(str(tmp_path / folder / "mine.yaml")), Store(tmp_path / "store"))
        assert [row.key for row in planned.manifest.experiment.rows] == ["weighting.score=own.py:mine"]
        assert str(tmp_path) not in planned.manifest.model_dump_json()
        (artifact,) = planned.graph.trained.values()
        return artifact

    code = "def mine(long_nll, short_nll): return (long_nll - short_nll) ** 2"
    first, elsewhere, other = trained("a", code), trained("b", code), trained("c", code.replace("2", "4"))
    assert first.identity.name.endswith("-frozen-sparse-0.4-mine")
    assert first.identity == elsewhere.identity
    assert str(tmp_path) not in str(first.identity)
    assert first.fingerprint != other.fingerprint
    assert first.stage.placed(first.sources).weighting.needs_short_nll  # type: ignore[attr-defined]
    for score, message in (("own.py:lost", "has no function 'lost'"), ("gone.py:mine", "cannot be read")):
        text = (tmp_path / "a" / "mine.yaml").read_text().replace("own.py:mine", score)
        (tmp_path / "a" / "mine.yaml").write_text(text)
        with pytest.raises(UserError, match=rf"mine\.yaml, line 3, rows\[0\]\.set\.weighting\.score: .*{message}"):
            found(str(tmp_path / "a" / "mine.yaml"))
        (tmp_path / "a" / "mine.yaml").write_text(text.replace(score, "own.py:mine"))


def test_weights_without_a_scorer_are_not_called_uniform(tmp_path: Path) -> None:
    raw = "{{recipe: table-3/uniform, set: {{weighting.score: {}, weighting.postprocessing: raw}}}}"
    rows = [raw.format("mile"), raw.format("focal")]
    rows += ["{recipe: table-3/unfrozen-sparse, set: {weighting.score: focal}}", "{recipe: table-3/uniform}"]
    text = "name: mine\nbenchmarks: [mmlu]\nrows:\n" + "".join(f"  - {row}\n" for row in rows)
    trained = plan_experiment(found(text), Store(tmp_path)).graph.trained.values()
    ends = ["raw-mile", "raw-focal", "sparse-0.2-focal", "uniform"]
    assert [artifact.identity.name.endswith(end) for artifact, end in zip(trained, ends, strict=True)] == [True] * 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("weighting.kappa", "weighting.kapa", r"line 5, rows\[0\]\.set\.weighting\.kapa: no such setting; did you mean"),
        ("weighting.kappa: 0.3", "weighting.kappa: 3", r"line 5, .*weighting\.kappa: Input should be less than or equal to 1"),
        ("weighting.kappa: 0.3", "scorer: null", r"line 5, rows\[0\]\.set\.scorer: weighting\.score 'abs_pmi' compares two"),
        ("weighting.kappa: 0.3", "scorer.short_tokens: 9", r"line 5, rows\[0\]\.set\.scorer\.short_tokens: stride_tokens"),
        ("weighting.kappa: 0.3", "training.steps: 1", r"line 5, rows\[0\]\.set\.training\.steps: steps 1 trains nothing"),
        ("weighting.kappa: 0.3", "seed: 0", r"line 5, rows\[0\]\.set\.seed: recipe .* has a seed of its own; leave it out, or"),
        ("weighting.kappa: 0.3", "training.steps: true", r"line 5, rows\[0\]\.set\.training\.steps: steps takes no true"),
        ("training.learning_rate: 1e-5", "training.learning_rate: true", r"line 3, set\.training\.learning_rate: .* no true"),
        ("table-3/uniform", "table-3/uniform, corpus: nowhere", r"line 6, rows\[1\]\.corpus: nowhere: does not exist"),
        ("table-3/uniform", "table-3/frozen-sparse, set: {weighting.kappa: 3}", r"line 6, rows\[1\]\.set\.weighting\.kappa"),
        ("training.learning_rate", "training.rate", r"line 3, set\.training\.rate: no such setting; did you mean training"),
        ("label: sparse", "lable: sparse", r"line 5, rows\[0\]\.lable: no such key; did you mean label\?"),
        ("rows:", "row:", r"line 4, row: no such key; did you mean rows\?"),
        ("seeds: 2", "seeds: two", r"line 8, seeds: .*valid integer.* \(got 'two'\)"),
        ("seeds: 2", "name: again", r'line 8: name is given twice'),
        ("[mmlu]", "[mmlu, rulr]", r"line 2, benchmarks\[1\]: .*did you mean ruler\?"),
        ("name: mine", "name: table-3", r"line 1, name: table-3 is the name of a target; choose another"),
        ("name: mine", "name: My own", r"line 1, name: use lowercase letters, digits and dashes"),
        ("name: mine", "name: " + "x" * 101, r"line 1, name: .*at most 100"),
        ("[mmlu]", "[]", r"line 2, benchmarks: is empty"),
        ("[mmlu]", "mmlu", r"line 2, benchmarks: is not a list; write for example"),
        ("seeds: 2", "corpus: ''", r"line 8, corpus: is empty"),
        ("seeds: 2", "corpus: nowhere", r"line 8, corpus: nowhere: does not exist"),
        ("seeds: 2", "lengths: [1]", r"line 8, lengths\[0\]: .*greater than or equal to 2"),
        ("seeds: 2", "limit: 3", r"limit: is for models that are not trained"),
        ("seeds: 2", "backend: vllm", r"backend: is for models that are not trained, all of them; set evaluation\.backend"),
        ("training.learning_rate", "training.save_every_steps", r"line 3, .*steps: is how a run works.* --execution save_every_"),
        ("seeds: 2", "limit: 0", r"line 8, limit: .*greater than 0"),
        ("seeds: 2", "[a]: 3", r"line 8, .*is not a word; write keys as words"),
        ("table-3/uniform", "table-3/unifrom", r"line 6, rows\[1\]\.recipe: 'table-3/unifrom' is unknown; did you mean"),
        ("smoke: {training.steps: 4}", "smoke: {training.stepz: 4}", r"line 10, scales\.smoke\.training\.stepz: no such setting"),
        ("seeds: 2", "lengths: [512, 99999]", r"line 8, lengths: no row has a context of 99999 tokens; give lengths up to 4096"),
        ("off uniform", "off", r"line 7, baseline: 'off' is not a row"),
        ("seeds: 2", "correlate: [mmlu, bbh]\ncolumns: [mmlu]", r"line 8, correlate: 'bbh' is unknown; choose one of mmlu"),
        ("seeds: 2", "columns: [ruler]", r"line 8, columns: ruler is made of ruler-1k, .*not among them; add what it is made of"),
        ("seeds: 2", "emphasis: {underline_above_row: unifrm}", r"line 8, emphasis: 'unifrm' is unknown; choose one of sparse"),
        ("label: sparse", "label: sparse, reference: unifrm", r"line 5, rows\[0\]\.reference: 'unifrm' is unknown; choose one of"),
        ("seeds: 2", "figure: {kind: ablation}", r"line 8, figure: is drawn of what is swept or measured; leave it out"),
        ("  tiny:", "  a/b:", r"scales\.a/b: is part of files' names; use letters, digits, dashes and _"),
        ("  tiny:", "  ..:", r"scales\.\.\.: is part of files' names; use letters, digits, dashes and _"),
        ("rows:", "rows: {", r"is not valid YAML"),
        ("seeds: 2", "seeds: \x07", r"line 8: is not valid YAML \(special characters are not allowed\)"),
        ("seeds: 2", f"seeds: {'1' * 5000}", r"cannot be read \(Exceeds the limit"),
        ("  - {label: sparse", "\t- {label: sparse", r"line 5: is not valid YAML \(a tab, where YAML takes spaces\)"),
        ("weighting.kappa: 0.3", "scorer: [1]", r"line 5, rows\[0\]\.set\.scorer: is not a mapping; .* \(got \[1\]\)"),
        ("weighting.kappa: 0.3", "chunking.sequences: 3", r"line 5, .*chunking\.sequences: .* \(3\) is less than the 8 that"),
        ("like: smoke, ", "", r"scales\.tiny: is a scale of your own; write `like: smoke`"),
        ("label: uniform, group: off", "label: sparse", r"rows\[1\]: has the label 'sparse' of another row"),
        (
            "recipe: table-3/uniform", "recipe: table-3/uniform, set: {weighting.score: npmi}",
            r"line 6, rows\[1\]\.set\.weighting\.score: is used by postprocessing dense, sparse, raw alone \(table-3/uniform",
        ),
        ("recipe: table-3/uniform", "set: {}", r"rows\[1\]: has neither a recipe nor a base"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in PLAIN
    file = tmp_path / "mine.yaml"
    file.write_text(PLAIN.replace(old, new))
    with pytest.raises(UserError, match=message) as caught:
        found(str(file))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("lengths", ["[512, 4096]", "[4096, 512]"])
def test_lengths_in_any_order_are_those_that_a_model_reads(lengths: str) -> None:
    rows = f"rows: [{{label: small, base: {smoke_base_dir()}}}, {{recipe: table-3/uniform}}]\n"
    with pytest.raises(UserError, match=r"line 2, lengths: 4096: small reads 1024 tokens"):
        found(f"name: mine\nlengths: {lengths}\n{rows}")
    with pytest.raises(UserError, match=r"--lengths 4096: small reads 1024 tokens"):
        found(f"name: mine\n{rows}", inputs=Inputs(settings=(f"evaluation.ruler.lengths_tokens={lengths}",)))


def test_a_number_of_seeds_or_benchmarks_of_ones_own() -> None:
    assert found("table-9:3").manifest.seeds == [0, 1, 2]
    one = found("table-3/uniform@ruler,pmi")
    assert (one.manifest.experiment.benchmarks, one.name) == ({"ruler", "pmi"}, "table-3-uniform")
    assert found(f"{EXAMPLES[0]}:2").manifest.seeds == [0, 1]
    for text, message in (
        ("table-9:0", "0 seeds are not possible"),
        ("table-3/uniform@rulr", "has an unknown benchmark"),
        ("x@ruler", "unknown"),
    ):
        with pytest.raises(UserError, match=message):
            find_experiments([text], "smoke")


def test_several_texts_are_several_experiments_once_each() -> None:
    for texts in (["table-9:2", "planted", "table-9"], ["table-9", "planted", "table-9:2"]):
        resolved = find_experiments(texts, "smoke")
        assert [(one.name, len(one.manifest.seeds)) for one in resolved] == [("table-9", 2), ("planted", 3)]
    with pytest.raises(
        UserError, match="table-3-uniform: two experiments that differ have this name; write them as one"
    ):
        find_experiments(["table-3/uniform@mmlu", "table-3/uniform@bbh"], "smoke")


def test_a_benchmark_of_which_nothing_can_be_read_is_refused_and_rows_without_it_are_not_alike(tmp_path: Path) -> None:
    rows = "".join(f"  - {{label: '{n}', recipe: table-3/no-train-8k, set: {{seed: {n}}}}}\n" for n in (1, 2))
    text = f"name: own\nbenchmarks: [ruler]\nset: {{evaluation.ruler.lengths_tokens: [4096]}}\nrows:\n{rows}"
    with pytest.raises(UserError, match="ruler: every length is beyond what the rows read; give shorter ones"):
        plan_experiment(found(text), Store(tmp_path))
    longer = plan_experiment(found(text + "  - {recipe: table-3/no-train-32k}\n"), Store(tmp_path))
    assert [len(recipes) for recipes in longer.graph.runs.values()] == [1, 1, 1]


def test_a_context_beyond_what_the_model_says_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    rows = f"rows:\n  - {{label: one, base: {smoke_base_dir()}, context: CONTEXT}}\n"
    for context, reads in ((1024, 1024), (1025, None)):
        file.write_text("name: mine\nbenchmarks: [longbench]\n" + rows.replace("CONTEXT", str(context)))
        refused = pytest.raises(UserError, match=r"mine\.yaml, line 4, rows\[0\]\.context: 1025: .* says 1024 tokens")
        with refused if reads is None else nullcontext():
            assert found(str(file)).recipes["one", 0].context_tokens == reads


def test_a_threshold_is_set_where_the_row_had_none() -> None:
    text = (
        "name: both\nrows:\n- label: both\n  recipe: methods/longfilter\n"
        "  set: {weighting.score: exact, weighting.postprocessing: raw, weighting.threshold: 1024}\n"
    )
    (recipe,) = found(text).each_recipe
    assert (recipe.weighting.threshold, recipe.filter is None) == (1024, False)
