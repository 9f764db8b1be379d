"""A training that is asked to stop leaves a checkpoint at once, and the next run ends as if it had not been stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from training_calls import train

from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training import launch
from tokenweight.training.checkpoints import last_complete
from tokenweight.training.launch import VARIABLE, Stopped, run_guarded, stop_all

sys.path.insert(0, str(Path(__file__).parent))
from terminated import TRAIN

EXECUTION = Execution(device="cpu", save_every_steps=100)
DENSE = Weighting(postprocessing="dense", lambda_=0.5)


def ask_at(step, stop_file):
    def progress(done, total, what):
        if done == step:
            stop_file.touch()

    return progress


def assert_same_model(out_dir, expected_dir):
    expected, got = (load_file(folder / "model" / "model.safetensors") for folder in (expected_dir, out_dir))
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


def test_a_training_that_is_asked_to_stop_goes_on_bit_for_bit(make_request, unfrozen, tmp_path, monkeypatch):
    request = make_request(steps=5, weighting=DENSE, scorer=unfrozen)
    stop_file = tmp_path / "stop"
    monkeypatch.setenv(VARIABLE, str(stop_file))
    with pytest.raises(Stopped, match="stopped on request after step 3 of 5, with a checkpoint; run again to resume"):
        train(request, tmp_path / "stopped", EXECUTION, ask_at(2, stop_file))  # heard at the end of the next step
    assert last_complete(tmp_path / "stopped" / "checkpoints")[0].name == "checkpoint-3"
    stop_file.unlink()
    assert train(request, tmp_path / "stopped", EXECUTION, no_progress)["resumed_from_step"] == 3
    train(request, tmp_path / "whole", EXECUTION, no_progress)
    assert_same_model(tmp_path / "stopped", tmp_path / "whole")


def test_a_training_asked_in_its_last_step_just_ends(make_request, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "stop"))
    train(make_request(steps=2), tmp_path / "out", EXECUTION, ask_at(1, tmp_path / "stop"))
    assert (tmp_path / "out" / "model").is_dir()


def test_ranks_know_the_stop_file_where_a_launcher_does_not_carry_the_environment(make_request, tmp_path, monkeypatch):
    """As on a cluster whose srun has --export=NONE."""
    command = launch.launch_command
    monkeypatch.setattr(launch, "launch_command", lambda *given: ["env", "-u", VARIABLE, *command(*given)])
    monkeypatch.setenv(VARIABLE, str(tmp_path / "stop"))
    (tmp_path / "stop").touch()
    launched = EXECUTION.model_copy(update={"launcher": "torchrun"})
    with pytest.raises(Stopped, match="after step 1 of 3"):
        train(make_request(steps=3), tmp_path / "out", launched, no_progress)


ENDS_WHEN_ASKED = """
import os, sys, time
print('tokenweight-progress', os.getpid(), 1, 'steps', flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
print('x' * 100_000)  # more than a pipe holds
open(sys.argv[1] + '.obeyed', 'w').close()
"""


@pytest.mark.parametrize(("error", "obeyed"), [(SystemExit, True), (KeyboardInterrupt, False)])
def test_a_child_is_asked_before_it_is_ended_but_not_at_ctrl_c(tmp_path, error, obeyed):
    def interrupt(*_):
        raise error

    stop_file = tmp_path / "stop"
    command = [sys.executable, "-c", ENDS_WHEN_ASKED, str(stop_file)]
    with pytest.raises(error):
        run_guarded(command, dict(os.environ), interrupt, stop_file=stop_file)
    assert (tmp_path / "stop.obeyed").exists() is obeyed


def test_a_child_that_does_not_listen_is_ended(tmp_path, monkeypatch):
    pids = []

    def interrupt(pid, *_):
        pids.append(pid)
        raise SystemExit

    monkeypatch.setattr("tokenweight.training.launch.STOP_SECONDS", 0.2)
    command = [sys.executable, "-c", ENDS_WHEN_ASKED, str(tmp_path / "another-file")]
    with pytest.raises(SystemExit):
        run_guarded(command, dict(os.environ), interrupt, stop_file=tmp_path / "stop")
    assert not psutil.pid_exists(pids[0])


def test_all_launched_trainings_are_asked_and_waited_for_and_those_that_hang_are_ended_on_all_nodes(
    tmp_path, monkeypatch
):
    stop_file, ended = tmp_path / "stop", []
    monkeypatch.setattr(launch, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(launch, "cancel_left_over", ended.append)
    monkeypatch.setattr(launch, "_active", {stop_file})
    stop_all()
    assert stop_file.exists()
    assert ended == [tmp_path]
    stop_file.unlink()
    monkeypatch.setattr(launch, "_active", set())
    stop_all()
    assert not stop_file.exists()
    assert ended == [tmp_path]


RANK = """
import sys, time
from pathlib import Path
from tokenweight.training.launch import stop_softly_at_term
stop_softly_at_term(Path(sys.argv[1]))
print('ready', flush=True)
time.sleep(600)
"""


@pytest.fixture
def rank(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_term_asks_a_rank_and_ends_one_whose_run_has_failed(rank, tmp_path):
    rank.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 120
    while not (tmp_path / "stop").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert rank.poll() is None
    (tmp_path / "error.pickle").touch()
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(120) == 128 + signal.SIGTERM


def test_term_ends_a_rank_that_was_asked_long_ago(rank, tmp_path):
    (tmp_path / "stop").touch()
    os.utime(tmp_path / "stop", (0, 0))
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(120) == 128 + signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True])
def test_a_run_ended_by_term_leaves_a_checkpoint_of_its_step_and_no_process(make_request, unfrozen, tmp_path, everyone):
    """To the parent alone, as a cancelled flow run, or to every process, as Slurm sends it to a preempted job."""
    request = make_request(steps=20, weighting=DENSE, scorer=unfrozen).model_copy(update={"repeat_rows": True})
    two = EXECUTION.model_copy(update={"launcher": "torchrun", "processes": 2})
    out = tmp_path / "ended"
    command = [sys.executable, "-c", TRAIN, request.model_dump_json(by_alias=True), str(out), two.model_dump_json()]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in parent.stdout:
        if line.startswith("3 "):
            break
    children = psutil.Process(parent.pid).children(recursive=True)
    for process in [psutil.Process(parent.pid), *(children if everyone else [])]:
        process.send_signal(signal.SIGTERM)
    _, errors = parent.communicate(timeout=600)
    assert errors.rstrip().endswith("Terminated")
    assert len(children) >= 3
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    last, broken = last_complete(out / "checkpoints")
    assert broken == []
    step = int(last.name.removeprefix("checkpoint-"))
    assert 3 <= step < 20
    assert train(request, out, two, no_progress)["resumed_from_step"] == step
    train(request, tmp_path / "whole", two, no_progress)
    assert_same_model(out, tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 21))
