"""`tokenweight evaluate`: any causal language model under the paper's protocol, on the shipped miniatures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.commands import reproduce as command
from tokenweight.errors import StageError
from tokenweight.evaluation.bbh import BBH_TASKS
from tokenweight.evaluation.benchmark import Unit
from tokenweight.pipeline.manifest import Manifest, ResolvedExperiment
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store
from tokenweight.planning import costs
from tokenweight.planning.plan import schedule
from tokenweight.recipes.options import EvaluationInputs, ModelOptions
from tokenweight.tasks.experiments import plan_models, write_tables

SHIPPED = str(smoke_base_dir())
SMOKE = ("--scale", "smoke", "--limit", "1", "--device", "cpu")
COMMAND = "from tokenweight.cli import main; main()"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture(scope="module")
def whole(place: Path) -> dict[str, Any]:
    """The report of the shipped base on everything, run as a flow in a process of its own."""
    command = [sys.executable, "-c", COMMAND, "evaluate", "--model", SHIPPED, *SMOKE, "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def run(place: Path, run_command: Run, pieces_in_order: None) -> Run:
    """Runs `tokenweight evaluate` in this process."""
    return partial(run_command, place, "evaluate")


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 2048 tokens with the shipped tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = tmp_path_factory.mktemp("models") / "longer"
    config = AutoConfig.from_pretrained(SHIPPED, max_position_embeddings=2048, num_hidden_layers=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    for file in smoke_base_dir().glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


def cells(report: dict[str, Any], row: int = 0) -> dict[str, dict[str, Any]]:
    keys = [column["key"] for column in report["columns"]]
    return dict(zip(keys, report["rows"][row]["cells"], strict=True))


def test_a_corpus_of_two_documents_is_read_whole_and_said_so(run: Run, tmp_path: Path, whole: dict[str, Any]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"The {name} of it is this. " * 400)
    given = ("--model", SHIPPED, "--scale", "smoke", "--device", "cpu", "--benchmarks", "perplexity", "--json")
    code, out, err = run(*given, "--corpus", str(tmp_path))
    assert (code, cells(json.loads(out))["perplexity-1k"]["n"]) == (0, 2)
    assert err.startswith(f"--corpus {tmp_path}: 2 documents, the protocol has 8; all of them are read")


def test_every_column_of_the_protocol_is_filled(whole: dict[str, Any], place: Path) -> None:
    row = cells(whole)
    assert list(row) == [
        "mmlu", "bbh", "bbh-tolerant", "longbench", "longbench-le1k", "longbench-gt1k",
        "longbench-single-doc-qa", "longbench-multi-doc-qa", "longbench-summarization", "longbench-few-shot",
        "longbench-synthetic", "longbench-code", "ruler", "ruler-1k", "perplexity-1k",
    ]  # fmt: skip
    absent = {key for key, cell in row.items() if cell["status"] != "complete"}
    assert absent == {"longbench-gt1k"}  # no shipped first sample is so long: said, not averaged
    assert row["longbench-gt1k"]["value"] is None
    assert row["longbench-gt1k"]["marks"]
    sizes = {key: row[key]["n"] for key in ("mmlu", "bbh", "longbench", "ruler", "perplexity-1k")}
    assert sizes == {"mmlu": 57, "bbh": 27, "longbench": 16, "ruler": 13, "perplexity-1k": 1}
    assert 1 < row["perplexity-1k"]["value"] < 10  # the shipped base has learned these texts' kind
    notes = " ".join(note["text"] for note in whole["notes"])
    assert "Limited to 1" in notes
    assert "Flagged mostly_truncated" in notes
    assert str(place) not in notes
    names = {path.name.removeprefix("evaluation-smoke-base") for path in (place / "results" / "smoke").iterdir()}
    files = {".md", ".tex", "-macros.tex", ".csv", ".json", ".manifest.json"}
    assert names == files  # and no figure of RULER by length: it reads one alone


def test_a_second_run_makes_nothing(whole: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_flow", lambda *_, **__: pytest.fail("something was run"))
    code, out, err = run("--model", SHIPPED, *SMOKE, "--json")
    assert (code, json.loads(out)) == (0, whole)
    assert "nothing to run" in err


def test_the_table_is_there_while_the_run_is_at_work(
    whole: dict[str, Any], place: Path, tmp_path: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first number on, and says that it is unfinished; a table without a number does not replace one."""
    from tokenweight.flows import reproduce as flows
    from tokenweight.reports.writing import write_unfinished

    told, table = list[str](), tmp_path / "results" / "smoke" / "evaluation-smoke-base.md"

    def make(graphs: list[Graph], store: Store, *_: object, **__: object) -> flows.Outcome:
        perplexity, *others = sorted(graphs[0].artifacts, key=lambda one: "perplexity" not in one.address)
        made(others[0])
        (manifest,) = manifests
        assert write_unfinished(manifest, store.root, table.parents[1], 1, 58) is None
        made(perplexity)
        end = time.monotonic() + 300
        while not table.exists() and time.monotonic() < end:
            time.sleep(0.1)
        head, text = table.read_text().split("\n", 1)
        assert head.startswith("**Unfinished:** 2 of 58 units are there.")
        (row,) = (line for line in text.splitlines() if line.startswith("| smoke-base |"))
        assert re.fullmatch(r"\| smoke-base \| —¹ \| \d\.\d\d \|", row)
        for one in others[1:]:
            made(one)
        return flows.Outcome()

    def made(one: Artifact) -> None:
        """Whole at once, as the store's own are: the table's thread may look at any time."""
        shutil.copytree(place / "store" / one.address, tmp_path / "store" / one.address.replace("/", "-"))
        (tmp_path / "store" / one.address).parent.mkdir(exist_ok=True)
        (tmp_path / "store" / one.address.replace("/", "-")).rename(tmp_path / "store" / one.address)

    manifests = list[Manifest]()
    run_experiments = flows.run_experiments

    def run_flow(**given: Any) -> None:
        manifests.extend(one.manifest for one in given["wanted"])
        run_experiments(**given)

    monkeypatch.setattr(flows, "run_graph", make)
    monkeypatch.setattr(flows, "publish", lambda *_: None)
    monkeypatch.setattr(flows, "get_run_logger", lambda: SimpleNamespace(info=lambda text, *_: told.append(text)))
    monkeypatch.setattr(command, "run_flow", run_flow)
    code, out, err = run_command(tmp_path, "evaluate", "--model", SHIPPED, *SMOKE, "--benchmarks", "mmlu,perplexity")
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"evaluation-smoke-base: its first number after \d+ s: {table}", told[0])
    assert table.read_text() in out
    assert "Unfinished" not in out


def test_a_dry_run_gives_the_hours_and_names_what_is_missing(
    tmp_path: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_flow", lambda *_, **__: pytest.fail("it was run"))
    monkeypatch.setattr(costs, "parameters", lambda config: 1_498_482_688)
    given = ("--model", SHIPPED, "--benchmarks", "mmlu,bbh", "--mmlu", ".", "--limit", "25", "--dry-run")
    code, out, err = run_command(tmp_path, "evaluate", *given)
    assert (code, err) == (0, "")
    hours = (57 * 25 * 21.9 / 1425 + 27 * 25 * 114.0 / 675) / 3600
    assert f"GPU-hours: {hours:.2g} on H200" in out
    assert "missing: evaluation.mmlu.data: " in " ".join(out.split())
    assert not (tmp_path / "results").exists()


def test_every_benchmark_is_in_lm_evals_results(whole: dict[str, Any], run: Run, place: Path) -> None:
    code, out, err = run("--model", SHIPPED, *SMOKE, "--output-path", "lm-eval")
    assert code == 0, err
    (file,) = (place / "lm-eval").glob("*/results_*.json")
    assert out.splitlines()[-1] == str(file.relative_to(place))
    found = json.loads(file.read_text())
    assert found["config"]["limit"] == 1
    wanted = {"niah_single_1": "1024,none", "mmlu_anatomy": "acc,none", "longbench_qasper": "qa_f1,none"}
    wanted |= {"bbh_cot_fewshot_navigate": "exact_match,get-answer", "perplexity_validation": "nll_1024,none"}
    for task, key in wanted.items():
        assert key in found["results"][task], (task, found["results"][task])
        (samples,) = file.parent.glob(f"samples_{task}_2*.jsonl")
        scores = [json.loads(line)[key.partition(",")[0]] for line in samples.read_text().splitlines()]
        assert found["results"][task][key] == pytest.approx(sum(scores) / len(scores))
        assert found["n-samples"][task] == {"original": 1, "effective": 1}


def test_another_limit_is_another_identity(whole: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[set[str]] = []

    def note(wanted: list[ResolvedExperiment], store: Store, **given: Any) -> None:
        entries = schedule(wanted[0].graph, store)
        planned.append({entry.artifact.stage.unit.benchmark for entry in entries if entry.action == "run"})
        given["written"][wanted[0].name] = write_tables(wanted[0], store, given["options"].out.resolve())

    monkeypatch.setattr(command, "run_flow", note)
    code, out, _ = run("--model", SHIPPED, "--scale", "smoke", "--limit", "2", "--benchmarks", "mmlu,bbh", "--json")
    assert (code, planned) == (0, [{"mmlu"}])  # of BBH the scale takes one sample of a task anyhow
    row = cells(json.loads(out))
    assert list(row) == ["mmlu", "bbh", "bbh-tolerant"]
    assert [cell["status"] for cell in row.values()] == ["missing", "complete", "complete"]


def test_a_run_that_was_cut_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three units are whole when it is cut; the next run evaluates the others, and only them."""
    from tokenweight.evaluation import run as evaluation

    arguments = ("--model", SHIPPED, *SMOKE, "--benchmarks", "bbh", "--store", "cut", "--json")
    original = evaluation.evaluate_checkpoint
    evaluated: list[str] = []

    def cut_at_the_fourth(*given: Any) -> Iterator[Unit]:
        for unit in original(*given):
            if len(evaluated) == 3:
                raise StageError("the model went away")
            evaluated.append(unit.id)
            yield unit

    with monkeypatch.context() as cut:
        cut.setattr(evaluation, "evaluate_checkpoint", cut_at_the_fourth)
        code, _, err = run(*arguments)
    assert (code, err.strip().splitlines()[-1]) == (1, "error: the model went away")

    asked: list[str] = []

    def noted(checkpoint: Path, jobs: list[Any], *given: Any) -> Iterator[Unit]:
        asked.extend(job.unit.id for job in jobs)
        yield from original(checkpoint, jobs, *given)

    monkeypatch.setattr(evaluation, "evaluate_checkpoint", noted)
    code, out, _ = run(*arguments)
    assert code == 0
    assert sorted(asked + evaluated) == sorted(f"bbh/{task}" for task in BBH_TASKS)
    assert cells(json.loads(out))["bbh"]["status"] == "complete"


def test_models_of_different_contexts_stand_in_rows(whole: dict[str, Any], longer: Path, run: Run) -> None:
    options = ("--benchmarks", "perplexity", *SMOKE, "--json")
    code, out, _ = run("--model", SHIPPED, "--compare", str(longer), *options)
    assert code == 0
    report = json.loads(out)
    assert [row["label"] for row in report["rows"]] == ["longer", "smoke-base"]
    first, second = cells(report, 0), cells(report, 1)
    assert first["perplexity-2k"]["value"] > 1000  # random
    assert second["perplexity-1k"]["value"] == cells(whole)["perplexity-1k"]["value"]
    assert second["perplexity-2k"]["value"] is None  # it reads 1024 tokens
    assert any("no units of perplexity at 2048" in note["text"] for note in report["notes"])


def test_automatic_lengths_are_the_context_and_its_halves(longer: Path, tmp_path: Path) -> None:
    model = shutil.copytree(longer, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 16384}))
    given = ModelOptions(scale="smoke"), EvaluationInputs(), Store(tmp_path / "store"), ["perplexity"], None
    for models, lengths in (([str(model)], (4096, 8192, 16384)), ([str(model), SHIPPED], (1024,))):
        planned, _ = plan_models(models, *given)
        assert planned.manifest.lengths.perplexity == lengths


def test_the_pmi_is_measured_on_request(longer: Path, run: Run, place: Path) -> None:
    """Two models, two curves; each with its own context."""
    windows = ("--set", "evaluation.pmi.short_tokens=256", "--set", "evaluation.pmi.stride_tokens=192")
    code, out, _ = run("--model", str(longer), "--model", SHIPPED, *SMOKE, "--benchmarks", "pmi", *windows, "--json")
    assert code == 0
    report = json.loads(out)
    random, trained = cells(report, 0), cells(report, 1)
    assert {cell["status"] for cell in (random | trained).values()} == {"complete"}
    assert trained["pmi-mean"]["value"] > 0.1  # the far context of a novel helps a model that has learned its kind
    assert abs(random["pmi-mean"]["value"]) < 0.05
    assert random["pmi-mean"]["n"] > trained["pmi-mean"]["n"] > 1000
    assert not any("Not run: pmi" in note["text"] for note in report["notes"])
    figures = {path.suffix: path for path in (place / "results" / "smoke").glob("evaluation.*")}
    assert {".pdf", ".svg", ".png", ".md"} <= set(figures)
    curve = (place / "results" / "smoke" / "evaluation-curve.csv").read_text().splitlines()
    assert {line.partition(",")[0] for line in curve[1:]} == {"longer", "smoke-base"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--benchmarks", "ruler,arc"), "'arc' is unknown"),
        (("--benchmarks", ","), "--benchmarks: is empty; choose from"),
        (("--model", str(SHIPPED) + "/config.json"), "config.json: is a file; give the checkpoint's directory"),
        (("--lengths", "4k"), "--lengths 4k: not lengths in tokens"),
        (("--compare", SHIPPED), f"--model {SHIPPED}: given twice"),
        (("--apply-chat-template",), "--apply-chat-template: applies only to tasks of lm-eval"),
        (("--tasks", "ruler,nowhere"), "lm_eval:nowhere: lm-eval"),
        (("--tasks", ","), "--tasks: is empty; choose from"),
        (("--tasks", "mmlu", "--benchmarks", "bbh"), "--tasks, --benchmarks: both choose what is run; give one"),
        (("--out", "/proc/x"), "--out /proc/x: /proc is not a directory that can be written"),
        (("--lengths", "1024,4096"), "--lengths 4096: smoke-base reads 1024 tokens"),
        (("--context", "512"), "reads 512 tokens, fewer than ruler's 1024"),
        (("--benchmarks", "pmi"), "which leaves pmi no far context beside a short one of 1024; give less with --set"),
        (("--revision", "main"), "--revision main: is of a hub id"),
        (("--model", SHIPPED), "given twice"),
        (("--set", "training.steps=1"), "--set training.steps: no such setting"),
        (("--mmlu", "nowhere"), "--mmlu nowhere: does not exist"),
        (("--mmlu", ".", "--longbench", "."), "or hub; evaluation.mmlu.data: "),
        (("--processes", "2", "--device", "cuda"), "torch sees no GPU"),
        (("--lengths", "128", "--benchmarks", "ruler"), "128 is too short"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], told: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from tokenweight.evaluation.hf_model import HFModel

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(HFModel, "__init__", lambda *_: pytest.fail("a model was loaded"))
    code, out, err = run("--model", SHIPPED, "--scale", "smoke", "--store", "mistakes", *arguments)
    lines = [line for line in err.splitlines() if line]
    assert (code, out, len(lines)) == (2, "", 1)
    assert told in lines[0]


def test_scale_paper_wants_a_gpu_and_its_data(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tokenweight.tasks import experiments

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked: list[set[str]] = []
    monkeypatch.setattr(experiments, "unreachable", lambda names, _: asked.append(set(names)) or ["mmlu: not here"])
    paper = ("--model", SHIPPED, "--lengths", "1024")
    code, _, err = run(*paper)
    assert code == 2
    assert all(name in err for name in ("ruler.haystack", "ruler.squad", "ruler.hotpotqa", "mmlu: not here"))
    monkeypatch.setattr(experiments, "unreachable", lambda names, _: [])
    code, _, err = run(*paper, "--benchmarks", "mmlu")
    assert (code, err.strip()) == (
        2,
        "error: device cuda: torch sees no GPU; run where there is one, or give --device cpu",
    )
    assert asked == [{"mmlu", "bbh", "longbench", "ruler", "perplexity"}]


def test_hub_data_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    from tokenweight.evaluation.units import unreachable
    from tokenweight.recipes import load

    def offline(self: HfApi, repo_id: str, **_: Any) -> None:
        if repo_id != "cais/mmlu":
            raise ConnectionError("no network")

    monkeypatch.setattr(HfApi, "dataset_info", offline)
    evaluation = load("table-3/uniform", "paper").evaluation
    lines = unreachable(("mmlu", "bbh", "perplexity"), evaluation)
    assert [line.partition(":")[0] for line in lines] == ["bbh", "perplexity"]
    assert "--bbh" in lines[0]
    assert "(the hub did not answer)" in lines[0]
    assert unreachable(("longbench", "perplexity"), load("table-3/uniform", "smoke").evaluation) == []


@pytest.mark.slow
def test_a_killed_run_goes_on_with_its_workers(place: Path, whole: dict[str, Any]) -> None:
    command = [sys.executable, "-c", COMMAND, "evaluate", "--model", SHIPPED, *SMOKE, "--json"]
    command += ["--store", "killed", "--out", "after", "--processes", "2"]
    environment = {**os.environ, "PREFECT_PLUGINS_ENABLED": "true"}  # ours ends the server with the run
    first = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while first.poll() is None and not list((place / "killed").glob("evaluate/*/record.json")):
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    before = {file: file.stat().st_mtime_ns for file in (place / "killed").glob("evaluate/*/record.json")}
    assert before
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == whole
    assert {file: file.stat().st_mtime_ns for file in before} == before


# --- The model, looked at ------------------------------------------------------------------------
