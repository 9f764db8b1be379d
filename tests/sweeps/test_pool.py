"""Models in a work pool, with a server that is made up: bounds, order, failures, refusals, cancelling; and the flows."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from prefect.client.schemas.objects import State, WorkPoolStatus
from prefect.exceptions import ObjectNotFound, ParameterTypeError
from prefect.states import Cancelled, Completed, Crashed, Failed, Running, Scheduled

from tokenweight.commands import reproduce as commands
from tokenweight.errors import UserError
from tokenweight.flows import pool as pools
from tokenweight.flows import reproduce as flows
from tokenweight.pipeline.store import Store
from tokenweight.planning.plan import SHARED
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import RunOptions
from tokenweight.reports.targets.find import find_experiments

ROOT = Path(__file__).parents[2]


class Server:
    """A server on which each flow run is over at the next look; `ends`: another state than completed, by label."""

    def __init__(self, ends: dict[str, State[Any]] | None = None) -> None:
        self.ends = ends or {}
        self.runs: dict[UUID, SimpleNamespace] = {}
        self.submitted: list[str] = []
        self.most = 0
        self.set: dict[str, str] = {}
        self.deployments = [SimpleNamespace(id=uuid4())]
        self.pool = SimpleNamespace(status=WorkPoolStatus.READY)
        self.own_pool = "tokenweight"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, _deployment: UUID, parameters: dict[str, Any], timeout: float = 0) -> SimpleNamespace:
        label = parameters["run"]
        run = SimpleNamespace(id=uuid4(), label=label, state=Running(), deployment_id=uuid4(), parameters=parameters)
        self.runs[run.id] = run
        self.submitted.append(label)
        self.most = max(self.most, sum(run.state.is_running() for run in self.runs.values()))
        return run

    def read_flow_runs(self, *, flow_run_filter: Any) -> list[SimpleNamespace]:
        if flow_run_filter.id is None:
            return list(self.runs.values())
        found = [self.runs[run_id] for run_id in flow_run_filter.id.any_ if run_id in self.runs]
        for run in found:
            run.state = self.ends.get(run.label, Completed())
        return found

    def set_flow_run_state(self, run_id: UUID, state: State[Any], force: bool) -> None:
        self.set[self.runs[run_id].label] = f"{state.name}{' by force' if force else ''}"

    def read_work_pool(self, name: str) -> SimpleNamespace:
        if name == "nowhere":
            raise ObjectNotFound(Exception())
        return self.pool

    def read_flow_run(self, _run_id: UUID) -> SimpleNamespace:
        return SimpleNamespace(work_pool_name=self.own_pool)

    def read_deployments(self, **_: Any) -> list[SimpleNamespace]:
        return self.deployments


class Plan:
    """An experiment of which `shared` is what several models lack, `lacking` who lacks it."""

    name = "s"

    def __init__(self, shared: list[str], lacking: list[str]) -> None:
        self.graph = SimpleNamespace(part=lambda runs: runs[0])
        self.shared, self.lacking = shared, lacking

    def to_make(self, label: str, _store: Store) -> list[str]:
        return [self.shared[0] if label in self.lacking else "own"]


Run = Callable[..., dict[str, str]]


@pytest.fixture
def in_pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    def run(server: Server, labels: list[str], plan: Plan | None = None, pool: str = "slurm", at_once: int = 2) -> Any:
        plan = plan or Plan([], [])
        plan.graph.runs = {label: [label] for label in labels}
        monkeypatch.setattr(pools, "to_make", plan.to_make)
        monkeypatch.setattr(pools, "shared_to_make", lambda *_: plan.shared)
        monkeypatch.setattr(pools, "get_client", lambda **_: server)
        monkeypatch.setattr(pools, "run_deployment", server.submit)
        monkeypatch.setattr(pools, "POLL_SECONDS", 0)
        monkeypatch.setattr(pools, "get_run_logger", lambda: logging.getLogger("sweep"))
        monkeypatch.setattr(pools, "runtime", SimpleNamespace(flow_run=SimpleNamespace(id=uuid4())))
        return pools.run_in_pool(plan, Store(tmp_path), pool, at_once, {})  # type: ignore[arg-type]

    return run


def test_no_more_than_so_many_at_once_and_failures_stop_nobody(in_pool: Run) -> None:
    ends = {"b": Failed(message="Flow run encountered an exception: StageError: loss is nan"), "d": Cancelled()}
    server = Server(ends)
    assert in_pool(server, ["a", "b", "c", "d", "e"]) == {"b": "loss is nan", "d": "ended as Cancelled"}
    assert server.submitted == ["a", "b", "c", "d", "e"]
    assert server.most == 2


def test_what_members_share_is_made_first(in_pool: Run) -> None:
    server = Server()
    assert in_pool(server, ["a", "b"], Plan(["scores"], ["a", "b"])) == {}
    assert server.submitted == [SHARED, "a", "b"]
    assert in_pool(server, [], Plan(["scores"], [])) == {}
    assert len(server.submitted) == 3


def test_what_an_earlier_attempt_began_is_not_begun_again(in_pool: Run) -> None:
    server = Server()
    server.submit(uuid4(), {"run": "b"})
    assert in_pool(server, ["a", "b", "c"]) == {}
    assert server.submitted == ["b", "a", "c"]
    assert server.most == 2


def test_without_what_they_share_members_do_not_start(in_pool: Run) -> None:
    server = Server({SHARED: Failed(message="no text")})
    assert in_pool(server, ["a", "b", "c"], Plan(["scores"], ["a", "c"])) == dict.fromkeys("ac", f"{SHARED}: no text")
    assert server.submitted == [SHARED, "b"]


def test_a_run_that_is_deleted_is_not_waited_for(in_pool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(server, "read_flow_runs", lambda **_: [])
    assert in_pool(server, ["a"]) == {"a": "its flow run was deleted"}


def test_a_crashed_run_has_time_to_be_set_going_again() -> None:
    now = datetime.now(UTC)
    late = now - timedelta(seconds=2 * pools.CRASH_SECONDS)

    assert not pools._is_over(Crashed(timestamp=now))
    assert pools._is_over(Crashed(timestamp=late))
    assert pools._is_over(Failed(timestamp=now))
    assert not pools._is_over(Scheduled(timestamp=late))


def test_pools_in_which_members_cannot_run(in_pool: Run, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match="pool nowhere: the server has no such work pool"):
        in_pool(Server(), ["a"], pool="nowhere")
    with pytest.raises(UserError, match="pool tokenweight: is the one of this run"):
        in_pool(Server(), ["a"], pool="tokenweight")
    server = Server()
    server.deployments = []
    with pytest.raises(UserError, match="pool slurm: has no deployment of the flow reproduce"):
        in_pool(server, ["a"])
    server = Server()
    server.pool.status = WorkPoolStatus.NOT_READY
    in_pool(server, ["a"])
    assert "pool slurm: no worker is running" in caplog.text


def test_a_cancelled_sweep_cancels_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.submit(uuid4(), {"run": "elsewhere"})
    own = server.submit(uuid4(), {"run": "in the sweep's process"})
    own.deployment_id = None
    monkeypatch.setattr(pools, "get_client", lambda **_: server)
    pools.cancel_runs(flow=None, flow_run=SimpleNamespace(id=uuid4()), state=None)  # type: ignore[arg-type]
    assert server.set == {"elsewhere": "Cancelling", "in the sweep's process": "Cancelled by force"}
    assert flows.reproduce.on_cancellation_hooks == [pools.cancel_runs]


def test_several_experiments_share_a_pool_by_their_names() -> None:
    inputs = Inputs(settings=("weighting.lambda=0.3",))  # which figure-2 does not have
    given = {"experiment": "table-3:3 figure-2", "scale": "smoke", **inputs.model_dump()}
    for planned in find_experiments(["table-3:3", "figure-2"], "smoke", inputs):
        own = pools.own_parameters(planned, given)
        asked = Inputs(settings=tuple(own["settings"]))
        (again,) = find_experiments([own["experiment"]], own["scale"], asked, own["seeds"])
        assert (again.name, again.recipes) == (planned.name, planned.recipes)
    with pytest.raises(UserError, match="run own by itself"):
        pools.own_parameters(SimpleNamespace(name="own"), given)  # type: ignore[arg-type]


def test_a_members_run_finds_what_its_command_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, asked = tmp_path / "my files", list[dict[str, Any]]()
    (here / "texts").mkdir(parents=True)
    for number in range(12):
        (here / "texts" / f"{number}.txt").write_text("A text.")
    (here / "own.py").write_text("def mine(long_nll, short_nll): return long_nll - short_nll")
    (here / "own.yaml").write_text("name: own\nbenchmarks: [mmlu]\nrows: [{recipe: table-3/frozen-sparse}]\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(commands, "make_and_show", lambda *_, parameters: asked.append(parameters))
    settings = ("training.steps=2", "evaluation.ruler.haystack=texts", "weighting.score=own.py:mine")
    given = {"corpus": "texts", "pool": "any", "store": tmp_path / "store"}
    commands.reproduce(["own.yaml:2"], settings=settings, **given)  # type: ignore[call-arg]
    commands.sweep(["table-3/frozen-sparse"], over=("weighting.score=own.py:mine",), **given)  # type: ignore[call-arg]
    monkeypatch.chdir(tmp_path)
    (own, texts), (swept, _) = (
        (
            find_experiments(text, "smoke", Inputs(corpus=one["corpus"], settings=one["settings"]), one["seeds"])[0],
            text,
        )
        for one in asked
        for text in [[one["experiment"]] if "\n" in one["experiment"] else shlex.split(one["experiment"])]
    )
    assert (own.name, own.manifest.seeds, texts) == ("own", [0, 1], [f"{here / 'own.yaml'}:2"])
    assert asked[0]["settings"][:2] == ["training.steps=2", f"evaluation.ruler.haystack={here / 'texts'}"]
    for one in (own, swept):
        assert one.each_recipe[0].weighting.score.startswith(f"{here / 'own.py'}:mine@")
        assert str(tmp_path) not in one.manifest.model_dump_json()


def test_a_pool_packs_records_and_takes_no_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = list[Path]()
    monkeypatch.setattr(flows, "get_run_logger", lambda: logging.getLogger())
    monkeypatch.setattr(flows, "run_in_pool", lambda *_: {})
    monkeypatch.setattr(flows, "packed_as_it_goes", lambda root, file: nullcontext(packed.extend([file])))  # type: ignore[func-returns-value]
    monkeypatch.setattr(flows, "write_tables", lambda *_: {})
    (planned,) = find_experiments(["figure-2"], "smoke")
    options = RunOptions(out=tmp_path, pool="any", records=tmp_path / "r.tar.xz")
    flows.run_experiments([planned], Store(tmp_path), default_execution("smoke"), options)
    assert packed == [tmp_path / "r.tar.xz"]
    with pytest.raises(UserError, match="seconds: does not end what runs in a pool"):
        flows.run_experiments([], Store(tmp_path), default_execution("smoke"), RunOptions(pool="any", seconds=1))


def test_the_deployments_of_sweeps_are_experiments() -> None:
    entries = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    ours = {entry["name"]: entry for entry in entries if entry["name"].startswith(("sweep", "one-model"))}
    assert set(ours) == {"sweep", "sweep-kappa", "sweep-lambda", "sweep-score", "sweep-scorer", "one-model"}
    assert {entry["entrypoint"] for entry in ours.values()} == {"tokenweight.flows.reproduce:reproduce"}
    own = ours.pop("one-model")
    for name, entry in ours.items():
        (resolved,) = find_experiments([entry["parameters"]["experiment"]], "smoke")
        assert resolved.name == name
        assert len(resolved.recipes) > 1
        assert own["work_pool"]["name"] != entry["work_pool"]["name"]


def test_parameters_have_limits() -> None:
    assert flows.reproduce.validate_parameters({"experiment": "table-3", "at_once": 2})["at_once"] == 2
    for given in ({}, {"experiment": "table-3", "at_once": 500}, {"experiment": "table-3", "processes": 0}):
        with pytest.raises(ParameterTypeError):
            flows.reproduce.validate_parameters(given)
