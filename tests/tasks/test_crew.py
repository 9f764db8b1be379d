"""A plan by several processes: what is a piece, which comes next, what a failure leaves, what the records hold."""

from __future__ import annotations

import os
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tokenweight import gpus
from tokenweight.pipeline import Build, Identity, Store
from tokenweight.pipeline.archive import write_records
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs, load, load_all
from tokenweight.recipes.schema import Chunking, Execution, FilesCorpus
from tokenweight.stages import Checkpoint, ChunkWork, EvaluateWork, Node
from tokenweight.tasks import crew
from tokenweight.tasks.crew import Outcome, Piece, pieces, run_crew
from tokenweight.training.checkpoints import mark_whole


@dataclass
class Idle:
    """A worker as `_next` sees it."""

    gpu: int | None
    piece: Piece | None = None


def node(name: str, stage: str = "train", *needs: Node) -> Node:
    return Node(Identity(stage, 1, name, {"of": name}, {}), None, needs)  # type: ignore[arg-type]


def piece(name: str, stage: str, *needs: Node) -> Piece:
    return Piece((node(name, stage),), frozenset(needs), name)


def test_a_piece_is_an_artifact_or_the_units_of_one_model_benchmark_and_length(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipes = load_all(["table-3/no-train-8k", "table-3/uniform"], "smoke")
    graphs = [Planner(store).graph([recipe], ["ruler", "perplexity"]) for recipe in recipes]
    found = pieces([schedule(graph, store) for graph in (*graphs, graphs[1])])
    nodes = [one for piece in found for one in piece.nodes]
    assert len(nodes) == len(set(nodes)), "nothing twice"
    evaluated = [piece for piece in found if isinstance(piece.nodes[0].work, EvaluateWork)]
    lengths = [{one.work.unit.length_tokens for one in piece.nodes} for piece in evaluated]  # type: ignore[union-attr]
    assert lengths == [{1024}, {1024}, {1024}, {2048}, {3072}, {4096}, {1024, 2048, 3072, 4096}]
    (training,) = (piece for piece in found if piece.nodes[0].stage == "train")
    assert training.is_long
    assert {one.stage for one in training.needs} == {"chunk", "extend"}
    assert training.nodes[0] in evaluated[-1].needs


def test_the_first_whose_inputs_are_there_comes_next_and_long_ones_do_not_crowd() -> None:
    base = node("base", "pretrain")
    waiting = [piece("trained", "train", base), piece("other", "train"), piece("prompts", "prepare")]
    crews = [Idle(0), Idle(1), Idle(0)]

    def choice(worker: Idle, unmade: set[Node], at_once: int = 2) -> str | None:
        found = crew._next(waiting, unmade, crews, worker, at_once, 2)  # type: ignore[arg-type]
        return found.name if found else None

    assert choice(crews[0], {base}) == "other"
    assert choice(crews[0], set()) == "trained"
    crews[0].piece = piece("busy", "train")
    assert choice(crews[2], set()) == "prompts", "its GPU has a long one already"
    assert choice(crews[1], set()) == "trained"
    assert choice(crews[1], set(), at_once=1) == "prompts"


def _chunk(path: Path, name: str, *needs: Node) -> Node:
    """A chunk artifact of the words in `path`."""
    from tokenweight.corpus.assets import smoke_base_dir

    corpus = FilesCorpus(path=str(path), validation_documents=1)
    tokenizer = Checkpoint("tokenizer", "0" * 64, path=smoke_base_dir())
    work = ChunkWork(corpus, Chunking(long_tokens=8), tokenizer, 4)
    return Node(Identity("chunk", 2, name, {"of": name}, {}), work, needs)


@pytest.mark.slow
def test_what_fails_is_named_what_needs_it_is_left_and_the_others_are_made(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text("one two three four five six seven eight nine ten")
    good, bad = _chunk(tmp_path, "good"), _chunk(tmp_path / "nothing", "bad")
    after = _chunk(tmp_path, "after", bad)
    graph = Graph(nodes=[bad, good, after], evaluations={"all": [bad, good, after]})
    store, told = Store(tmp_path / "store"), list[str]()
    outcome = run_crew(
        pieces([schedule(graph, store)]), store, Execution(device="cpu"), workers=2, gpus=0, long_at_once=1,
        end=time.monotonic() + 120, note=told.append,
    )  # fmt: skip
    assert outcome.made == 1
    assert outcome.left == 1
    (failure,) = outcome.failed
    assert failure.startswith("chunk/bad")
    assert "does not exist" in failure
    assert store.state(good.identity).kind == "whole"
    assert len(told) == 2
    assert write_records(store.root, tmp_path / "records.tar.xz") == 1
    with tarfile.open(tmp_path / "records.tar.xz") as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert names == {"record.json", "accounting.json", "sequences.parquet", "weights-removed.json"}


def test_at_the_end_of_the_time_nothing_is_left_at_work(tmp_path: Path) -> None:
    graph = Graph(nodes=[_chunk(tmp_path, "never")])
    graph.evaluations["all"] = list(graph.nodes)
    store = Store(tmp_path / "store")
    outcome = run_crew(
        pieces([schedule(graph, store)]), store, Execution(device="cpu"), workers=1, gpus=0, long_at_once=1,
        end=time.monotonic() - 1, note=lambda _: None,
    )  # fmt: skip
    assert (outcome.made, outcome.left, outcome.failed) == (0, 1, [])


def test_records_leave_weights_and_tokens_behind(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def write(work: Build) -> None:
        (work.directory / "model").mkdir()
        for name in ("metrics.jsonl", "model/model.safetensors", "tokens.npy"):
            (work.directory / name).write_text("{}")

    model = node("model").identity
    store.get_or_build(model, write)
    cut = store.partial(node("cut").identity)
    cut.mkdir()
    (cut / "metrics.jsonl").write_text("{}")
    assert write_records(store.root, tmp_path / "records.tar.xz") == 1
    with tarfile.open(tmp_path / "records.tar.xz") as archive:
        names = archive.getnames()
    assert names == [f"{model.address}/{name}" for name in ("metrics.jsonl", "record.json", "weights-removed.json")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table-99"], "target 'table-99': unknown"),
        (["table-3", "--gpus", "-1"], "no fewer GPUs than 0"),
        (["table-3:x"], "table-3:x: not TARGET:SEEDS"),
        (["table-3", "--corpus", "nowhere"], "--corpus nowhere: does not exist"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crew.main([*arguments, "--scale", "smoke", "--store", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_the_crew_takes_free_gpus_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gpus.LOCKS, str(tmp_path / "locks"))
    monkeypatch.setenv(gpus.VISIBLE, "4,5,6")
    monkeypatch.setattr(gpus, "_count", lambda: 3)
    seen = []

    def work(*_: object, gpus: int, **__: object) -> Outcome:
        seen.append((gpus, os.environ["CUDA_VISIBLE_DEVICES"]))
        return Outcome()

    monkeypatch.setattr(crew, "run_crew", work)
    command = ["table-3/uniform@perplexity", "--scale", "smoke", "--store", str(tmp_path / "store")]
    held = gpus._lock("5")
    assert held is not None
    assert crew.main([*command, "--gpus", "2"]) == 0
    os.close(held)
    assert crew.main([*command, "--gpus", "0"]) == 0
    assert seen == [(2, "4,6"), (0, "4,5,6")]
    assert crew.main([*command, "--gpus", "4"]) == 2
    assert crew.main([*command, "--workers", "0"]) == 2
    assert crew.main([*command, "--records", str(tmp_path / "none/r.tar.xz")]) == 2
    said = capsys.readouterr().err
    assert "--gpus 4: torch sees 3 here" in said
    assert "at least one worker" in said
    assert "none is no directory" in said


def test_a_cut_training_that_was_begun_otherwise_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    graph = Planner(store).graph([load("table-3/uniform", "smoke")], ["perplexity"])
    node = graph.trained["table-3/uniform"]
    checkpoint = store.partial(node.identity) / "checkpoints" / "checkpoint-8"
    checkpoint.mkdir(parents=True)
    (checkpoint / "rng_state.pth").write_bytes(b"x")
    mark_whole(checkpoint, Execution(micro_batch_sequences=2))
    command = ["table-3/uniform@perplexity", "--scale", "smoke", "--store", str(tmp_path), "--gpus", "0"]
    assert crew.main([*command, "--execution", "micro_batch_sequences=1"]) == 2
    assert "checkpoint-8: was made with micro_batch_sequences 2, this run has" in capsys.readouterr().err
    assert not list(tmp_path.glob("chunk/*"))


def test_the_scale_mini_can_be_planned_from_a_directory_of_books(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.txt").write_text("word " * 20)
    inputs = Inputs(corpus=str(tmp_path))
    graph = Planner(Store(tmp_path / "store")).graph([load("table-5/sparse-1b", "mini", inputs)], ["perplexity"])
    assert not graph.missing
    assert [one.stage for one in graph.nodes].count("pretrain") == 2
