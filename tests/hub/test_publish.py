"""`tokenweight publish`: a trained model with its card and results, offline, and uploaded to a hub on the loopback."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import Hub
from huggingface_hub import ModelCard, constants, parse_eval_result_entries

from tokenweight.assets import smoke_base_dir
from tokenweight.commands import publishing
from tokenweight.evaluation.rows import Row, write_unit
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline.experiment import Lengths
from tokenweight.pipeline.manifest import (
    Manifest,
    RowEntry,
    StageEntry,
    UnitEntry,
    keep_manifest,
    manifest_path,
    read_manifest,
)
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import WEIGHTS_REMOVED, Store, read_record
from tokenweight.recipes.recipe import build, read_yaml, scaled
from tokenweight.reports import cards
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.labels import experiment_at

TOKEN = "hf_of_a_test"
HUB_DATA: Any = BENCHMARKS["mmlu"].hub_data
Run = Callable[..., tuple[int, str, str]]


def made(store: Store, identity: Identity, write: Callable[[Path], object], hours: int = 0) -> StageEntry:
    with store.building(identity) as work:
        assert work is not None
        work.started += timedelta(hours=hours)
        write(work.directory)
    return StageEntry(address=identity.address, fingerprint=identity.fingerprint)


def evaluated(
    store: Store, row: str, unit: str, checkpoint: str, hub: dict[str, str] | None, right: int, hours: int = 0
) -> UnitEntry:
    """Eight samples of a unit, `right` of them right, of the hub's data or of others; `hours` from now."""
    benchmark, task = unit.split("/")
    own = {"data": "hub" if hub else "sha256:1", "samples": None}
    config = {"unit": {"benchmark": benchmark}, "evaluation": {benchmark: own}, "protocol": {"hub": hub}}
    identity = Identity("evaluate", 1, f"{row}--{benchmark}-{task}", config, {"checkpoint": checkpoint})
    rows = [
        Row(doc_id=i, prompt_sha256=str(i), n_prompt_tokens=9, metric="acc", score=float(i < right)) for i in range(8)
    ]
    entry = made(
        store, identity, lambda directory: write_unit(rows, {"n": 8, "n_expected": 8, "flags": []}, directory), hours
    )
    return UnitEntry(unit=unit, benchmark=benchmark, task=task, n_expected=8, **entry.model_dump())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two trained rows of Table 3, evaluated on MMLU of the hub and on local data of BBH."""
    place = tmp_path_factory.mktemp("publish")
    store, entries = Store(place / "store"), []
    for row, seed, right in (("uniform", 0, 4), ("frozen-sparse", 0, 7), ("frozen-sparse", 1, 2)):
        identity = Identity("train", 1, row, {"row": row, "seed": seed})
        train = made(store, identity, lambda directory: shutil.copytree(smoke_base_dir(), directory / "model"))
        hub = dict(HUB_DATA.identity)
        units = [
            evaluated(store, row, f"mmlu/{task}", train.fingerprint, hub, right) for task in ("anatomy", "virology")
        ]
        units.append(evaluated(store, row, "bbh/navigate", train.fingerprint, None, right))
        entries.append(RowEntry(row=row, seed=seed, recipe=f"table-3/{row}", units=tuple(units), train=train))
    entries.append(RowEntry(row="no-train-32k", recipe="table-3/no-train-32k"))
    lengths = Lengths(ruler=(8192, 32_768))
    recipes = {
        entry.recipe: tuple(build(entry.recipe, "paper", scaled(entry.recipe, "paper")).settings()) for entry in entries
    }
    for name in ("table-3", "table-10"):
        given: dict[str, Any] = {"experiment": experiment_at(get_target(name), lengths), "lengths": lengths}
        told: dict[str, Any] = {
            "scale": "paper",
            "about": "A test.",
            "command": f"tokenweight reproduce {name} --scale paper",
        }
        keep_manifest(Manifest(**given, **told, recipes=recipes, rows=tuple(entries)), store.root)
    return place


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({}) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()


def contents(directory: Path) -> dict[str, bytes]:
    files = (file for file in directory.rglob("*") if file.is_file())
    return {file.relative_to(directory).as_posix(): file.read_bytes() for file in files}


def test_a_row_becomes_a_models_page_without_a_network(place: Path, run_command: Run) -> None:
    row = "table-3/frozen-sparse"
    code, out, err = run_command(place, "publish", row, "--scale", "paper", "--license", "llama3", "--out", "page")
    assert (code, out, err) == (0, "page\n", "")
    found = contents(place / "page")
    base = contents(smoke_base_dir())
    same = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {name: base[name] for name in same} == {name: found[name] for name in same}
    assert found.keys() - same == {"README.md", ".eval_results/mmlu.yaml"}
    card = ModelCard.load(place / "page" / "README.md")
    assert card.text.startswith("\n# frozen-sparse\n")
    assert (card.data.base_model, card.data.license) == ("meta-llama/Meta-Llama-3-8B", "llama3")
    assert card.data.datasets == ["emozilla/pg19"]
    assert "| MMLU full | 87.50 | [69.34, 100.00] | 16 | +37.50 " in card.text
    assert "| weighting.kappa | 0.4 |" in card.text
    assert "@inproceedings{helm-etal-2025-token" in card.text
    (result,) = parse_eval_result_entries(read_yaml(found[".eval_results/mmlu.yaml"].decode()))
    assert (result.dataset_id, result.dataset_revision) == (HUB_DATA.repo_id, HUB_DATA.revision)
    assert (result.task_id, result.value, result.source_url) == ("mmlu", 87.5, None)
    assert not [name for name, content in found.items() if str(place).encode() in content]


@pytest.mark.parametrize("text", ["apache-2.0", "mit", "cc-by-4.0", "llama3", "other"])
def test_licenses_of_spdx_and_of_the_hub_are_known(text: str) -> None:
    assert publishing._is_license(text)


@pytest.mark.parametrize("text", ["Apache-2.0", "apache 2", "mit or apache-2.0", "free"])
def test_others_are_not(text: str) -> None:
    assert not publishing._is_license(text)


def test_a_seeds_page_has_its_own_values(place: Path, run_command: Run) -> None:
    given = ("table-3/frozen-sparse/seed-1", "--scale", "paper", "--out", "second")
    assert run_command(place, "publish", *given)[0] == 0
    assert run_command(place, "publish", "table-3/frozen-sparse/seed-0", *given[1:-1], "first")[0] == 0
    text = (place / "second" / "README.md").read_text()
    for line in ("| MMLU full | 25.00 | ", "| seed | 1 |", "| chunking.seed | 1 |"):
        assert line in text


def test_a_checkpoint_has_every_table_that_measured_it(place: Path, run_command: Run) -> None:
    checkpoint = next((place / "store" / "train").glob("frozen-sparse-*"))
    code, _, err = run_command(place, "publish", str(checkpoint), "--out", "other", "--license", "Llama 3")
    assert (code, err.startswith("--license Llama 3: is not known")) == (0, True)
    code, _, err = run_command(place, "publish", str(checkpoint), "--out", "tables")
    assert (code, err) == (0, "README.md names no license: give --license, or add it\n")
    text = (place / "tables" / "README.md").read_text()
    assert text.index("### Table 10") < text.index("### Table 3")


def test_another_evaluation_hides_no_earlier_value_and_a_failed_one_nothing(
    place: Path, run_command: Run, tmp_path: Path
) -> None:
    shutil.copytree(place / "store", tmp_path / "store")
    store = Store(tmp_path / "store")
    (train,) = store.root.glob("train/uniform-*")
    fingerprint = str((read_record(train) or {})["fingerprint"])
    kept = read_manifest(manifest_path(store.root, "table-10", "paper"))
    first = kept.rows[0]
    lost = [unit.model_copy(update={"address": f"evaluate/lost-{i}"}) for i, unit in enumerate(first.units)]
    bbh = evaluated(store, "again", "bbh/navigate", fingerprint, None, 5, hours=1)
    hub = dict(HUB_DATA.identity)
    mmlu = [evaluated(store, "again", f"mmlu/{one}", fingerprint, hub, 6, hours=1) for one in ("anatomy", "virology")]
    for units in ((*lost[:2], bbh), (*mmlu, lost[2]), lost):  # MMLU failed, then BBH, then all
        rows = (first.model_copy(update={"units": tuple(units)}), *kept.rows[1:])
        keep_manifest(kept.model_copy(update={"rows": rows}), store.root)
    for what in (str(train), "table-3/uniform"):
        code, _, err = run_command(
            tmp_path, "publish", what, "--scale", "paper", "--license", "mit", "--out", train.name
        )
        assert (code, err) == (0, "")
        text = (tmp_path / train.name / "README.md").read_text()
        lines = [line.split(" | ")[:2] for line in text.splitlines() if " | [" in line]
        assert [(name[2:6].strip(), value) for name, value in lines] == [("BBH", "62.50"), ("MMLU", "75.00")]
        shutil.rmtree(tmp_path / train.name)


def test_only_a_named_repository_is_uploaded_to(place: Path, run_command: Run, hub: Hub) -> None:
    row = ("publish", "table-3/uniform", "--scale", "paper", "--out")
    assert run_command(place, *row, "here")[0] == 0
    assert hub.asked == []
    code, out, err = run_command(place, *row, "there", "--to", "me/weighted", "--license", "mit")
    assert (code, out.splitlines()) == (0, ["there", f"{hub.url}/me/weighted"]), err
    uploaded = hub.repositories["models", "me/weighted"].files
    assert uploaded == contents(place / "there")
    assert f"url: {hub.url}/me/weighted" in uploaded[".eval_results/mmlu.yaml"].decode()
    assert not [name for name, content in uploaded.items() if TOKEN.encode() in content]


def test_a_scored_data_set_is_uploaded_as_it_is(place: Path, run_command: Run, hub: Hub) -> None:
    (place / "weighted" / "data").mkdir(parents=True)
    pq.write_table(pa.table({"input_ids": [[1, 2]]}), place / "weighted" / "data" / "train-0.parquet")
    (place / "weighted" / "README.md").write_text("---\n---\nA card.\n")
    code, out, err = run_command(place, "publish", "weighted", "--to", "me/weights", "--private")
    assert (code, out) == (0, f"{hub.url}/datasets/me/weights\n"), err
    repository = hub.repositories["datasets", "me/weights"]
    assert (repository.files, repository.gated) == (contents(place / "weighted"), True)


@pytest.mark.parametrize(
    ("benchmark", "own", "protocol", "repo_id"),
    [
        ("bbh", {"samples": 5}, {"hub": {"repo_id": "a/b", "revision": "c"}}, None),
        ("perplexity", {"documents": None, "corpus": {"repo_id": "a/b", "revision": "c"}}, {}, "a/b"),
        ("lm_eval:arc_easy", {"samples": None}, {"task": {"dataset_path": "allenai/ai2_arc"}}, "allenai/ai2_arc"),
        ("lm_eval:own", {}, {"task": {"dataset_path": "json", "dataset_kwargs": {"data_files": "x"}}}, None),
    ],
)
def test_results_are_of_a_whole_data_set_of_the_hub(
    benchmark: str, own: dict[str, Any], protocol: dict[str, Any], repo_id: str | None
) -> None:
    family = benchmark.partition(":")[0]
    found = cards._hub_of({"unit": {"benchmark": benchmark}, "evaluation": {family: own}, "protocol": protocol})
    assert (found and found["repo_id"]) == repo_id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table-3/frozen-sparse",), "--out: is missing"),
        (("table-3/frozen-sprase", "--out", "x"), "has no such row; did you mean frozen-sparse?"),
        (("table-5/uniform", "--out", "x"), "the store has no table-5 at scale paper"),
        (("table-3", "--out", "x"), "table-3: names no row, TABLE/ROW; choose one of uniform, frozen-sparse"),
        (("./my-modle", "--out", "x"), "./my-modle: is not a directory; correct the path, or name a row"),
        (("store/train", "--out", "x"), "store/train: is not a model; name a row, or a directory with a checkpoint"),
        (("table-3/no-train-32k", "--out", "x"), "publish a row that was, or the base's directory"),
        (("page", "--out", "x", "--scale", "nope"), "scale 'nope': unknown; choose one of smoke, mini"),
        (("table-3/uniform", "--out", "store"), "--out store: is not empty"),
        (("table-3/uniform", "--out", "x", "--to", "me/weighted"), "--to me/weighted: needs a login"),
        (("table-3/uniform", "--out", "x", "--to", "weighted"), "--to weighted: names no owner; write OWNER/NAME"),
    ],
)
def test_mistakes_are_one_line(
    place: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    scale = () if "--scale" in arguments else ("--scale", "paper")
    code, _, err = run_command(place, "publish", *arguments, *scale)
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
    assert not (place / "x").exists()


def test_what_is_damaged_or_gone_is_not_published(place: Path, run_command: Run, tmp_path: Path, hub: Hub) -> None:
    shutil.copytree(place / "store", tmp_path / "store")
    (artifact,) = (tmp_path / "store" / "train").glob("uniform-*")
    weights = artifact / "model" / "model.safetensors"
    row = ("publish", "table-3/uniform", "--scale", "paper", "--out", "x")
    hub.shutdown()
    hub.server_close()
    code, _, err = run_command(tmp_path, *row, "--to", "me/weighted", "--license", "mit")
    assert code == 2
    assert "could not be uploaded" in err
    assert "`hf upload me/weighted" in err
    shutil.rmtree(tmp_path / "x")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "is damaged" in run_command(tmp_path, *row)[2]
    weights.unlink()
    (artifact / WEIGHTS_REMOVED).write_text('["model/model.safetensors"]')
    assert re.search(
        r"were removed from the store; remove .*/evaluate/[\w.-]+--\* and run", run_command(tmp_path, *row)[2]
    )
    assert not (tmp_path / "x").exists()
