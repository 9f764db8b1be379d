"""Launcher srun against a real Slurm of two nodes: the numbers of torchrun, and no job left however the run ends."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))

from local_slurm import LocalSlurm, missing, wait_for
from terminated import TRAIN
from training_calls import train

from tokenweight.errors import StageError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.checkpoints import last_complete

pytestmark = pytest.mark.slow
SRUN = Execution(device="cpu", launcher="srun", processes=2, nodes=2, save_every_steps=100)
DENSE = Weighting(postprocessing="dense", lambda_=0.5)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if reason := missing():
        pytest.skip(f"NO SLURM HERE, the launcher srun is not tested: {reason}")
    cluster = LocalSlurm(tmp_path_factory.mktemp("slurm") / "cluster")
    before = dict(os.environ)
    try:
        cluster.start()
        os.environ.update(cluster.environment)
        yield cluster
    finally:
        cluster.stop()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def place(tmp_path):
    """Where the store makes the artifact train/uniform-1234abcd."""
    return tmp_path / "train" / ".uniform-1234abcd.partial"


@pytest.fixture
def started(make_request, unfrozen, place):
    """Starts a training in a process of its own, which is killed at the end."""
    processes = []

    def start(execution):
        request = make_request(steps=20, weighting=DENSE, scorer=unfrozen).model_copy(update={"repeat_rows": True})
        arguments = [request.model_dump_json(by_alias=True), str(place), execution.model_dump_json()]
        command = [sys.executable, "-c", TRAIN, *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def nothing_is_left(slurm):
    return slurm.queue() == [] and slurm.processes() == []


def test_two_nodes_give_the_numbers_of_one_and_carry_the_artifacts_name(slurm, make_request, unfrozen, place, tmp_path):
    request = make_request(weighting=DENSE, scorer=unfrozen)
    names = set()
    recorded = train(request, place, SRUN, lambda *_: names.update(slurm.queue()))
    assert names == {"train/uniform-1234abcd"}
    assert recorded["execution"]["launcher"] == "srun"
    train(request, tmp_path / "one", Execution(device="cpu", launcher="torchrun", processes=2), no_progress)
    expected, got = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path / "one", place))
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())
    wait_for(lambda: nothing_is_left(slurm), "the job to end")


def test_an_error_on_any_node_is_one_clear_line(slurm, make_request, place):
    request = make_request(steps=8, learning_rate=1e30, warmup_steps=4, gradient_clip=1e9)
    with pytest.raises(StageError, match=r"^training stopped at step \d+"):
        train(request, place, SRUN, no_progress)
    with pytest.raises(StageError, match="invalid partition specified: nowhere"):
        train(request, place, SRUN.model_copy(update={"srun_options": "--partition=nowhere"}), no_progress)
    wait_for(lambda: nothing_is_left(slurm), "the job to end")


def test_term_leaves_a_checkpoint_of_the_step_and_no_job(slurm, started, place):
    process = started(SRUN)
    assert any(line.startswith("3 ") for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert errors.rstrip().endswith("Terminated")
    wait_for(lambda: nothing_is_left(slurm), "the job to end", 10)
    assert last_complete(place / "checkpoints")[0] is not None


def test_a_kill_leaves_no_job(slurm, started):
    process = started(SRUN)
    assert any(line.startswith("3 ") for line in process.stdout)
    process.kill()
    wait_for(lambda: nothing_is_left(slurm), "the job to end", 60)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_while_its_job_waits_takes_it_out_of_the_queue(slurm, started, signum):
    process = started(SRUN.model_copy(update={"srun_options": "--hold"}))
    wait_for(lambda: slurm.queue() == ["train/uniform-1234abcd"], "the job in the queue")
    process.send_signal(signum)
    wait_for(lambda: slurm.queue() == [], "the job to leave the queue", 60)
    process.communicate(timeout=600)


def test_a_killed_srun_leaves_no_job(slurm, started):
    """As the out-of-memory killer may do: the launcher ends what its srun has left."""
    process = started(SRUN)
    assert any(line.startswith("3 ") for line in process.stdout)
    for one in slurm.run("pgrep", "-x", "srun").split():
        if "uniform-1234abcd" in Path(f"/proc/{one}/cmdline").read_text():
            os.kill(int(one), signal.SIGKILL)
    _, errors = process.communicate(timeout=600)
    assert "srun ended with status" in errors
    wait_for(lambda: nothing_is_left(slurm), "the job to end", 60)


def test_inside_a_job_it_is_a_step_of_that_job(slurm, make_request, place, tmp_path):
    request = make_request()
    arguments = [request.model_dump_json(by_alias=True), str(place), SRUN.model_dump_json()]
    command = shlex.join([sys.executable, "-c", TRAIN, *arguments])
    output = tmp_path / "out"
    number = slurm.run(
        "sbatch", "--parsable", "--nodes=2", f"--output={output}", "--wrap", f"{command}; sleep 1; echo went on"
    ).strip()
    wait_for(lambda: slurm.job(number)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), "the job to end", 180)
    assert slurm.job(number)["JobState"] == "COMPLETED", output.read_text()
    assert output.read_text().splitlines()[-1] == "went on"
    assert (place / "model").is_dir()
    assert json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 3
