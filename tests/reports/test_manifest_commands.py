"""What a manifest says a reader may type: as it was given, and without places of this machine."""

from collections.abc import Callable
from pathlib import Path

from reports_fake_store import FakeStore, manifest_of

from tokenweight.commands.report import _manifests
from tokenweight.pipeline.manifest import Manifest, RowEntry, keep_manifest, with_failures
from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.reports.html.page import show_config_command
from tokenweight.reports.targets import TARGETS
from tokenweight.reports.targets.find import find_experiments, models_experiment, sweep_experiment
from tokenweight.tasks.experiments import plan_experiment


def test_commands_are_typed_as_they_were_given(store: FakeStore) -> None:
    given = {"corpus": "my books", "set training.steps": "3", "set weighting.kappa": "0.3"}
    rows = [RowEntry(row="uniform", recipe="table-3/uniform", seed=seed, units=()) for seed in (0, 1)]
    manifest = manifest_of("table-3", rows, inputs=given)
    assert manifest.full_command == (
        "tokenweight reproduce table-3 --scale smoke --seeds 2 --corpus 'my books' "
        "--set training.steps=3 --set weighting.kappa=0.3"
    )


def test_commands_of_sweeps_and_evaluations_name_what_they_run(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def mine(long_nll, short_nll): return long_nll")
    swept = sweep_experiment(["table-3/uniform"], [f"weighting.score={own}:mine,ppmi"], [], (), None)
    assert swept.command == "tokenweight sweep table-3/uniform --over weighting.score=own.py:mine,ppmi"
    members = sweep_experiment(["table-3/uniform"], [], ["training.steps=2 seed=1", "seed=2"], ("mmlu",), "mine")
    typed = "--member 'training.steps=2 seed=1' --member seed=2 --measures mmlu --name mine"
    assert members.command == f"tokenweight sweep table-3/uniform {typed}"
    models = {"a": str(tmp_path / "a"), "b": "me/b@1234"}
    evaluated = models_experiment(models, ("ruler", "mmlu"), lengths_tokens=(512, 1024), limit=3)
    typed = "--model a --model me/b@1234 --benchmarks ruler,mmlu --lengths 512,1024 --limit 3 --backend hf"
    assert evaluated.command == f"tokenweight evaluate {typed}"


def test_targets_that_are_left_out_for_one_reason_are_one_line(tmp_path: Path) -> None:
    found, left_out = _manifests(list(TARGETS), "own", Inputs(), None, Store(tmp_path), lenient=True)
    assert (found, len(left_out)) == ([], 1)
    assert f"ruler-tasks ({len(TARGETS)}) are left out: scale 'own': unknown" in left_out[0]


def test_a_page_names_no_absolute_paths(tmp_path: Path) -> None:
    books = tmp_path / "my books"
    books.mkdir()
    for number in range(12):
        (books / f"{number}.txt").write_text("word " * 20)
    inputs = Inputs(corpus=str(books), settings=(f"evaluation.mmlu.data={tmp_path}",))
    (resolved,) = find_experiments(["table-9"], "mini", inputs)
    manifest = plan_experiment(resolved, Store(tmp_path / "store")).manifest
    assert str(tmp_path) not in manifest.model_dump_json()
    settings = manifest.recipes["table-3/uniform"]
    assert ("corpus.path", "my books", "given by you") in settings
    (mixture,) = (value for key, value, _ in settings if key == "base.corpus.parts")
    assert mixture[0]["corpus"]["path"] == "my books"
    shown = f"tokenweight show-config table-3/uniform --scale mini --set evaluation.mmlu.data={tmp_path.name}"
    assert show_config_command(manifest, "table-3/uniform") == shown


def test_a_table_that_lacks_values_is_written_and_the_command_fails(
    store: FakeStore, tmp_path: Path, run_command: Callable[..., tuple[int, str, str]]
) -> None:
    store.add("uniform", "mmlu/anatomy", [1, 0, 1])
    keep_manifest(store.manifest(), store.root)
    arguments = ("report", "table-3", "--store", str(store.root), "--out", "out", "--no-figures")
    code, out, err = run_command(tmp_path, *arguments)
    assert (code, "- Incomplete: " in out) == (1, True)
    assert err.startswith("error: table-3 (smoke): ")
    assert err.endswith(f"values missing; run tokenweight reproduce table-3 --scale smoke --store {store.root}\n")
    assert (tmp_path / "out" / "smoke" / "table-3.md").is_file()
    code, _, err = run_command(tmp_path, *arguments[:-1], "--html", "page.html")
    assert (code, err.startswith("error: --out: ")) == (2, True)


def test_a_file_is_known_by_the_name_in_it_and_one_that_is_gone_by_its_own(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "store"), tmp_path / "table-9.yaml"
    keep_manifest(find_experiments(["table-9"], "smoke")[0].manifest, store.root)
    file.write_text("name: mine\nbenchmarks: [mmlu]\nrows: [{recipe: table-3/uniform}]\n")
    names = []
    for _ in range(2):
        ((manifest,), _) = _manifests([str(file)], "smoke", Inputs(), None, store, lenient=False)
        names.append(manifest.name)
        file.unlink(missing_ok=True)
    assert names == ["mine", "table-9"]


def test_a_file_is_shown_as_it_is_now_and_as_it_was_run_where_it_needs_what_the_run_was_given(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "store"), tmp_path / "mine.yaml"
    text = (
        "name: mine\ntitle: First\nbenchmarks: [mmlu]\nset: {training.steps: 12}\nrows: [{recipe: table-3/uniform}]\n"
    )

    def shown(text: str) -> tuple[Manifest, list[str]]:
        file.write_text(text)
        ((manifest,), lines) = _manifests([str(file)], "smoke", Inputs(), None, store, lenient=False)
        return manifest, lines

    file.write_text(text)
    (two_seeds,) = find_experiments([f"{file}:2"], "smoke")
    run = with_failures(plan_experiment(two_seeds, store).manifest, {"table-3/uniform": "its disk is full"})
    keep_manifest(run, store.root)
    assert shown(text) == (run, [])
    titled, _ = shown(text.replace("First", "Second"))
    assert (titled.experiment.title, titled.rows) == ("Second", run.rows)
    shorter, _ = shown(text.replace("12", "3"))
    assert len(shorter.rows) == 2
    assert not {row.train for row in shorter.rows} & {row.train for row in run.rows}
    assert not any(row.failed for row in shorter.rows)
    manifest, (line,) = shown(f"{text}\ncorpus: gone\n")
    assert (manifest, "mine.yaml cannot be planned any more (" in line) == (run, True)
    given = run.model_copy(update={"inputs": {"corpus": "my books"}})
    keep_manifest(given, store.root)
    manifest, (line,) = shown(text.replace("First", "Second"))
    assert manifest == given
    assert line.startswith("mine: is shown as the store's manifest of 20")
    assert line.endswith("mine.yaml may have changed since, and needs --corpus my books")
