"""The runner: pieces in worker processes behind Prefect tasks; what fails, dies, or is too late ends nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psutil
import pytest

pytest.importorskip("prefect", reason="NOT CHECKED: prefect is missing (extra `flows`)")

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.testing.utilities import prefect_test_harness

from tokenweight.errors import StageError
from tokenweight.flows import pool
from tokenweight.flows.reproduce import Outcome, reproduce, run_artifacts, run_graph
from tokenweight.pipeline.locks import lease
from tokenweight.pipeline.stage import Graph
from tokenweight.pipeline.store import Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import SHARED
from tokenweight.recipes import Inputs, load
from tokenweight.recipes.schema import Execution
from tokenweight.reports.targets.find import sweep_experiment
from tokenweight.tasks import slots
from tokenweight.tasks.experiments import plan_texts
from tokenweight.tasks.pieces import run_in_order
from tokenweight.tasks.worker import OutOfMemory

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
from work_for_slots import chunk, graph_of, texts

CPU = Execution(device="cpu", slots=2, eval_batch_sequences=16, micro_batch_sequences=2)
LOADED = "loads the model"  # in a worker's log
SETTINGS = (
    "training.steps=1",
    "training.warmup_steps=0",
    "evaluation.mmlu.samples=1",
    "evaluation.bbh.max_new_tokens=4",
)


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=600):
        yield


def run(graph: Graph, store: Store, execution: Execution = CPU, **more: Any) -> tuple[Outcome, str]:
    """The outcome, and the flow run's id."""

    @flow(persist_result=False)
    def of_test() -> tuple[Outcome, str]:
        return run_graph([graph], store, execution, **more), str(flow_run.id)

    return of_test()


def task_runs(flow_run_id: str) -> dict[str, Any]:
    """What the page draws: label -> (state's name, labels of its parents)."""
    with get_client(sync_client=True) as client:
        answer = client._client.get(f"/flow_runs/{flow_run_id}/graph-v2").json()
        tasks = {node["id"]: node["label"] for _, node in answer["nodes"]}
        found = {}
        for _, node in answer["nodes"]:
            parents = {tasks[parent["id"]] for parent in node["parents"]}
            found[node["label"]] = (client.read_task_run(node["id"]).state.name, parents)
    return found


def test_the_page_shows_the_edges_also_of_what_is_reused_and_a_model_is_loaded_once(tmp_path: Path) -> None:
    store, one = Store(tmp_path / "store"), CPU.model_copy(update={"slots": 1})
    recipe = load("table-3/frozen-sparse", "smoke", Inputs(settings=SETTINGS))
    first, _ = run(Planner(store).graph([recipe], ["mmlu"]), store)
    assert not first.failed
    assert first.made > 5
    log = store.root / "logs" / "worker-0.log"
    before = log.read_text().count(LOADED)
    outcome, run_id = run(Planner(store).graph([recipe], ["mmlu", "bbh", "pmi"]), store, one)
    assert outcome.reused == first.made
    shown = task_runs(run_id)
    name = "table-3/frozen-sparse"
    (chunks,) = (label for label in shown if label.startswith("chunk "))
    (scores,) = (label for label in shown if label.startswith("score "))
    assert shown[chunks] == ("Reused", set())
    assert shown[scores] == ("Reused", {chunks})
    assert shown[f"train {name}"] == ("Reused", {chunks, scores, f"extend {name}"})
    assert shown[f"evaluate {name} mmlu"] == ("Reused", {f"train {name}"})
    assert shown[f"evaluate {name} bbh"] == ("Completed", {f"train {name}"})
    assert log.read_text().count(LOADED) - before == 1, "bbh and pmi of one model"


def test_members_of_a_pool_make_what_they_share_first_and_then_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pool, but each member's flow run is one below this, and makes its artifacts in this process."""
    asked = []

    def run_in_this_process(graphs: list[Graph], store: Store, execution: Execution) -> Outcome:
        for graph in graphs:
            run_in_order(graph, store, execution)
        return Outcome()

    def run_here(deployment: UUID, parameters: dict[str, Any], timeout: float) -> SimpleNamespace:
        asked.append(parameters["run"])
        state = reproduce(**parameters, return_state=True)  # type: ignore[call-overload]
        return SimpleNamespace(id=state.state_details.flow_run_id)

    monkeypatch.setattr(pool, "_deployment_in", lambda client, name: UUID(int=1))
    monkeypatch.setattr(pool, "run_deployment", run_here)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.1)
    monkeypatch.setattr("tokenweight.flows.reproduce.run_graph", run_in_this_process)
    experiment = sweep_experiment(["table-3/frozen-sparse"], ["weighting.kappa=0.2,0.4"], [], ["mmlu"], "k")
    texts, store = [experiment.model_dump_json(indent=1, exclude_defaults=True)], Store(tmp_path / "store")
    ((planned,), _) = plan_texts(texts, "smoke", Inputs(settings=SETTINGS), store)

    @flow(persist_result=False)
    def of_test() -> dict[str, str]:
        given = {"experiment": texts[0], "settings": SETTINGS, "execution": ("device=cpu", "slots=1")}
        return pool.run_in_pool(planned, store, "any", 1, given)

    assert of_test() == {}
    assert asked == [SHARED, *planned.graph.runs]
    made = Counter(record.parent.parent.name for record in store.root.glob("*/*/record.json"))
    assert (made["chunk"], made["extend"], made["score"], made["train"]) == (1, 1, 1, 2)


def test_a_run_of_any_name_begins(tmp_path: Path) -> None:
    run_artifacts(Graph(), Store(tmp_path), CPU, "score {texts}")


def test_what_fails_ends_its_dependents_alone_and_all_failures_are_reported_together(tmp_path: Path) -> None:
    good, bad = chunk(texts(tmp_path / "texts"), "good"), chunk(tmp_path / "nothing", "bad")
    worse, after = chunk(tmp_path / "nowhere", "worse"), chunk(tmp_path / "texts", "after", bad)
    store = Store(tmp_path / "store")
    outcome, run_id = run(graph_of(bad, worse, good, after), store)
    assert (outcome.made, [piece.label for piece in outcome.skipped]) == (1, ["chunk after"])
    assert store.state(good.identity).kind == "complete"
    with pytest.raises(Exception, match=r"nothing.*nowhere.*not run because of that: chunk after"):
        outcome.raise_failures()
    assert {label: state for label, (state, _) in task_runs(run_id).items()} == {
        "chunk good": "Completed", "chunk bad": "Failed", "chunk worse": "Failed",
    }  # fmt: skip


def test_a_killed_worker_fails_its_piece_alone_and_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converse, killed = slots.Slots._converse, list[int]()

    def kill(self: slots.Slots, slot: slots.Slot, connection: Any, piece: Any, *given: Any) -> Any:
        if piece.label == "chunk killed":
            assert slot.worker is not None
            process, _ = slot.worker
            assert process.pid is not None
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        return converse(self, slot, connection, piece, *given)

    monkeypatch.setattr(slots.Slots, "_converse", kill)
    place = texts(tmp_path / "texts")
    one = CPU.model_copy(update={"slots": 1})
    outcome, _ = run(graph_of(*(chunk(place, name) for name in ("killed", "b", "c"))), Store(tmp_path / "store"), one)
    assert len(killed) == 1
    (failure,) = outcome.failures()
    assert failure.startswith("chunk killed: its worker process ended (signal 9) without a message")
    assert outcome.made == 2


def test_a_piece_for_which_a_gpus_memory_was_full_gets_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converse, tries = slots.Slots._converse, list[str]()

    def full(self: slots.Slots, slot: slots.Slot, connection: Any, piece: Any, *given: Any) -> Any:
        tries.append(piece.label)
        if piece.label == "chunk never" or tries.count(piece.label) == 1:
            raise OutOfMemory("CUDA out of memory")
        return converse(self, slot, connection, piece, *given)

    monkeypatch.setattr(slots.Slots, "_converse", full)
    place = texts(tmp_path / "texts")
    outcome, _ = run(graph_of(*(chunk(place, name) for name in ("never", "later"))), Store(tmp_path / "store"))
    assert sorted(tries) == ["chunk later"] * 2 + ["chunk never"] * 2
    assert (outcome.failures(), outcome.made) == (["chunk never: CUDA out of memory"], 1)


def test_the_time_is_over(tmp_path: Path) -> None:
    outcome, _ = run(graph_of(chunk(texts(tmp_path / "texts"), "never")), Store(tmp_path / "store"), seconds=0.0)
    assert [piece.label for piece in outcome.left] == ["chunk never"]
    with pytest.raises(StageError, match="the time limit is reached: chunk never left"):
        outcome.raise_failures()
    assert not (tmp_path / "store" / "logs").exists(), "no worker was started"


def test_a_stage_is_ended_at_its_deadline_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converse = slots.Slots._converse

    def timed(self: slots.Slots, slot: slots.Slot, connection: Any, piece: Any, *given: Any) -> Any:
        own = copy(self)  # a busy machine makes nothing in five seconds
        own.execution = CPU.model_copy(update={"deadline_seconds": 5.0 if piece.label == "chunk held" else 600.0})
        return converse(own, slot, connection, piece, *given)

    monkeypatch.setattr(slots.Slots, "_converse", timed)
    place, store = texts(tmp_path / "texts"), Store(tmp_path / "store")
    held, free = chunk(place, "held"), chunk(place, "free")
    with lease(store.root, "chunk", held.fingerprint):  # it waits for another run for ever
        outcome, _ = run(graph_of(held, free), store)
    assert outcome.failures() == ["chunk held: ended after 5.0 s (execution.deadline_seconds); run again to resume"]
    assert outcome.made == 1


def test_a_piece_is_submitted_when_it_is_ready(tmp_path: Path) -> None:
    """One that was submitted before would poll its parents for seconds, beside an idle worker."""
    place = texts(tmp_path / "texts")
    first = chunk(place, "first")
    store = Store(tmp_path / "store")
    nodes = [first, *(chunk(place, f"{i}", first) for i in range(3))]
    _, run_id = run(graph_of(*nodes), store, CPU.model_copy(update={"slots": 3}))
    with get_client(sync_client=True) as client:
        answer = client._client.get(f"/flow_runs/{run_id}/graph-v2").json()
        runs = {node["label"]: client.read_task_run(node["id"]) for _, node in answer["nodes"]}
    done = runs.pop("chunk first").end_time
    assert len(runs) == 3
    assert all(one.expected_start_time >= done for one in runs.values())


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tokenweight.tasks.slots import Slots
from tokenweight.pipeline.store import Store
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.pieces import Piece
from work_for_slots import chunk, texts
place = Path(sys.argv[1])
with Slots(Store(place / "store"), Execution(device="cpu", slots=1), []) as slots:
    piece = Piece("chunk one", "chunk", 0, artifacts=[chunk(texts(place / "texts"), "one")])
    slots.take([piece])
    slots.run(piece, print, lambda *_: None)
    print("made", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_process(signum: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parents[1] / "tasks")]
    victim = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "made\n"
    children = psutil.Process(victim.pid).children(recursive=True)
    assert len(children) >= 2, "the process that forks, and a worker"
    victim.send_signal(signum)
    victim.wait()
    assert not psutil.wait_procs(children, timeout=120)[1]
