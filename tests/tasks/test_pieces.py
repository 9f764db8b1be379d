"""What a piece is, and which comes next on which slots."""

from __future__ import annotations

from pathlib import Path

import pytest
from work_for_slots import chunk

from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import schedule
from tokenweight.recipes import load_all
from tokenweight.recipes.schema import Execution
from tokenweight.tasks import slots
from tokenweight.tasks.pieces import ModelKey, Piece, pieces_of
from tokenweight.tasks.slots import Slots


def piece(label: str, stage: str, experiment: int = 0) -> Piece:
    return Piece(label, stage, experiment, artifacts=[chunk(Path(label), label.replace(" ", "-"))])


class Evaluation(Piece):
    """A piece that asks one model."""

    @property
    def model(self) -> ModelKey:
        return ModelKey(self.label.split()[0], 4096, "fp32", "hf")


def evaluation(label: str, experiment: int = 0) -> Piece:
    return Evaluation(label, "evaluate", experiment, artifacts=piece(label, "evaluate").artifacts)


def chosen(places: Slots, ready: list[Piece]) -> list[tuple[str, list[int]]]:
    """What begins now, and on which slots."""
    found, left = [], list(ready)
    while one := places.take(left):
        left.remove(one)
        found.append((one.label, [slot.number for slot in places.slots if slot.piece is one]))
    return found


def test_a_piece_is_an_artifact_or_the_units_of_one_model_and_benchmark(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipes = load_all(["table-3/no-train-8k", "table-3/uniform"], "smoke")
    graphs = [Planner(store).graph([recipe], ["ruler", "perplexity"]) for recipe in recipes]
    plans = [schedule(graph, store) for graph in (*graphs, graphs[1])]
    found = pieces_of([*graphs, graphs[1]], plans)
    artifacts = [one for piece in found for one in piece.artifacts]
    assert len(artifacts) == len(set(artifacts)), "nothing twice"
    assert [piece.label for piece in found if piece.stage == "evaluate"] == [
        "evaluate table-3/no-train-8k ruler", "evaluate table-3/no-train-8k perplexity",
        "evaluate table-3/uniform ruler", "evaluate table-3/uniform perplexity",
    ]  # fmt: skip
    assert [piece.label.split()[-1] for piece in found if piece.is_quickest] == ["perplexity", "perplexity"]
    (training,) = (piece for piece in found if piece.stage == "train")
    assert training.label == "train table-3/uniform"
    assert {parent.stage for parent in training.parents} == {"chunk", "extend"}
    assert training in found[-1].parents
    assert all(found.index(parent) < found.index(piece) for piece in found for parent in piece.parents)
    apart = [piece.label for piece in pieces_of(graphs, plans[:2], by_length=True) if "uniform ruler" in piece.label]
    assert apart == [f"evaluate table-3/uniform ruler {length}" for length in (1024, 2048, 3072, 4096)]


def test_long_pieces_come_first_and_an_evaluation_goes_where_its_model_is(tmp_path: Path) -> None:
    places = Slots(Store(tmp_path), Execution(device="cpu", slots=2), [])
    places.slots[1].model = evaluation("b bbh").model
    ready = [evaluation("a mmlu"), evaluation("b ruler"), piece("trained", "train"), piece("sooner", "chunk", -1)]
    assert chosen(places, ready) == [("sooner", [0]), ("trained", [1])]
    places = Slots(Store(tmp_path), Execution(device="cpu", slots=2), [])
    places.slots[1].model = evaluation("b bbh").model
    ready = [evaluation("a mmlu"), evaluation("a ruler"), evaluation("b ruler")]
    assert chosen(places, ready) == [("b ruler", [1]), ("a mmlu", [0])]
    places.release(ready[0])
    ready = [piece("prompts", "prepare"), evaluation("c ruler"), evaluation("c mmlu")]
    ready[-1].is_quickest = True
    assert chosen(places, ready) == [("c mmlu", [0])], "a model's first number soon"


def test_whole_seeds_come_one_after_the_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipes = load_all(["table-3/uniform/seed-1", "table-3/uniform"], "smoke")
    graph = Planner(store).graph(recipes, ["perplexity"])
    found = pieces_of([graph], [schedule(graph, store)])
    assert {piece.seed for piece in found if piece.stage in ("train", "evaluate")} == {0, 1}
    (first,) = (piece for piece in found if piece.stage == "evaluate" and piece.seed == 0)
    (training,) = (piece for piece in found if piece.stage == "train" and piece.seed == 1)
    places = Slots(store, Execution(device="cpu", slots=1), [])
    assert chosen(places, [training, first]) == [("evaluate table-3/uniform perplexity", [0])]


def test_long_pieces_do_not_crowd_a_gpu(tmp_path: Path) -> None:
    places = Slots(Store(tmp_path), Execution(slots_per_gpu=4), ["0", "1"])
    trainings = [piece(f"training {i}", "train") for i in range(6)]
    taken = chosen(places, [*trainings, evaluation("a mmlu"), piece("prompts", "prepare")])
    assert [places.slots[numbers[0]].gpus[0] for _, numbers in taken[:4]] == ["0", "1", "0", "1"], "two on each"
    assert [label for label, _ in taken[4:]] == ["a mmlu", "prompts"]
    assert not places.slots[taken[5][1][0]].gpus, "prompts need no GPU"


def test_a_piece_on_several_gpus_waits_for_them_alone(tmp_path: Path) -> None:
    places = Slots(Store(tmp_path), Execution(launcher="torchrun", processes=2, slots_per_gpu=2), ["0", "1"])
    assert chosen(places, [evaluation("a mmlu")]) == [("a mmlu", [0])]
    (busy,) = (slot.piece for slot in places.slots if slot.piece)
    ready = [piece("training", "train"), evaluation("b mmlu")]
    assert chosen(places, ready) == [], "what has become free is kept for the training"
    places.release(busy)
    assert chosen(places, ready) == [("training", [0, 1, 2, 3])]


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 2), (64, 2)])
def test_two_slots_on_a_cpu_of_two_cores(
    cores: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_cores", lambda: cores)
    assert len(Slots(Store(tmp_path), Execution(device="cpu"), []).slots) == count


def test_threads_of_a_worker_are_those_of_the_first_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")  # as clusters set it
    monkeypatch.setattr(slots, "start", lambda *given: given)
    places = Slots(Store(tmp_path), Execution(device="cpu"), [])
    *_, environment = places._start(places.slots[0], ())
    assert environment["OMP_NUM_THREADS"] == "3,1"  # type: ignore[index]
