"""What is told before a launch, the commands that launch, and DeepSpeed's configuration; nothing is started here."""

import json
import re
import socket
import sys
from importlib import metadata

import pytest

from tokenweight.errors import UserError
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.schema import Execution, Training
from tokenweight.training.deepspeed_config import check_deepspeed, deepspeed_config, validate_deepspeed_config
from tokenweight.training.launch import launch_command
from tokenweight.training.launch_check import check_launch
from tokenweight.training.srun_node import torchrun_command


def execution(**fields):
    return Execution(**{"device": "cpu", "launcher": "torchrun", "processes": 4, **fields})


TWO_NODES = {"nodes": 2, "rendezvous": "node01:29500"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"launcher": "inline"}, "execution.launcher: 'inline' is one process"),
        ({"launcher": "inline", "processes": 1, "deepspeed_stage": 3}, "execution.launcher: 'inline' is one process"),
        (
            {"launcher": "inline", "processes": 1, "hostfile": "hosts"},
            "execution.hostfile: launcher 'inline' takes none",
        ),
        ({"nodes": 3, "rendezvous": "node01:29500"}, "execution.processes: 4 on all nodes do not divide by 3"),
        ({"nodes": 2}, "execution.rendezvous: torchrun on several nodes needs one"),
        ({"rendezvous": "node01:29500"}, "execution.rendezvous: launcher 'torchrun' on one node takes none"),
        ({**TWO_NODES, "rendezvous": "node01"}, "'node01' is not HOST:PORT"),
        ({**TWO_NODES, "hostfile": "hosts"}, "execution.hostfile: launcher 'torchrun' takes none"),
        ({**TWO_NODES, "launch_prefix": "no-such-srun -N 2"}, "execution.launch_prefix: no-such-srun is not found"),
        ({**TWO_NODES, "launch_prefix": "'srun"}, "is not a command"),
        ({"launcher": "srun", "rendezvous": "node01:29500"}, "execution.rendezvous: launcher 'srun' takes none"),
        (
            {"launcher": "srun", "srun_options": "--comment='a"},
            'execution.srun_options: "--comment=\'a" has an open quote',
        ),
        ({"launcher": "srun"}, "execution.launcher: srun is not found here"),
        ({"srun_options": "--exclusive"}, "execution.srun_options: launcher 'torchrun' takes none"),
        ({"sequence_parallel": 3}, "execution.sequence_parallel: 3 does not divide execution.processes"),
        ({"launcher": "deepspeed", "nodes": 2}, "execution.hostfile: deepspeed on several nodes needs one"),
        ({"launcher": "deepspeed", "nodes": 2, "hostfile": "none-here"}, "none-here does not exist"),
        (
            {"launcher": "deepspeed", "nodes": 2, "launch_prefix": "srun"},
            "launch_prefix: launcher 'deepspeed' takes none",
        ),
    ],
)
def test_combinations_that_cannot_be_launched_are_told(fields, message, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=re.escape(message)):
        check_launch(execution(**fields))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a slots=2\n", "names 1 hosts for 2 nodes"),
        ("a slots=2\nb slots=1\n", "b has 1 slots, 2 processes a node"),
        ("a slots=2\n\nb gpus=2\n", "line 3 is not"),
        ("a slots=2\na slots=2\n", "line 2 is not"),
    ],
)
def test_a_hostfile_that_does_not_fit_is_told(text, message, tmp_path):
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(UserError, match=message):
        check_launch(execution(launcher="deepspeed", nodes=2, hostfile=str(tmp_path / "hosts")))


def test_a_deepspeed_that_is_missing_or_old_is_told_with_the_way_out(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tokenweight.training.launch_check.metadata.version", version)
    with pytest.raises(
        UserError, match=re.escape("not installed") + ".*" + re.escape("pip install 'deepspeed>=0.19.2'")
    ):
        check_launch(execution(deepspeed_stage=3))
    monkeypatch.setattr("tokenweight.training.launch_check.metadata.version", lambda name: "0.16.3")
    with pytest.raises(UserError, match=re.escape("0.16.3 is installed, 0.19.2 or later is needed")):
        check_launch(execution(launcher="deepspeed"))


def test_a_plan_asks_for_no_package(monkeypatch):
    """One plans on a laptop what a cluster runs; `plan` lists what is missing."""

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tokenweight.training.launch_check.metadata.version", version)
    assert planned_execution("paper", processes=2).deepspeed_stage == 3
    with pytest.raises(UserError, match="deepspeed: not installed"):
        execution_for("paper", processes=2)


def test_commands_of_the_launchers(tmp_path, monkeypatch):
    request = tmp_path / "request.json"
    request.write_text("{}")

    def command(**fields):
        return " ".join(launch_command(execution(**fields), request, tmp_path))

    worker = f"tokenweight.training.worker {request} {tmp_path}"
    assert command().endswith(f"-m torch.distributed.run --standalone --nproc_per_node 4 -m {worker}")
    several = command(**TWO_NODES, launch_prefix="srun --ntasks-per-node=1")
    assert several.startswith(
        f"srun --ntasks-per-node=1 {sys.executable} -m torch.distributed.run --nnodes 2 --nproc_per_node 2 "
    )
    assert "--rdzv_backend c10d --rdzv_endpoint node01:29500 --rdzv_id " in several
    hosts = command(launcher="deepspeed", **TWO_NODES, hostfile="hosts")
    assert "--hostfile hosts --num_nodes 2 --num_gpus 2 --master_addr node01 --master_port 29500" in hosts
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert "--num_gpus 2 " in command(launcher="deepspeed", processes=2)
    assert "--include localhost:4,5 " in command(launcher="deepspeed", processes=2, device="cuda")


def test_deepspeed_configuration_says_what_the_recipe_says():
    training = Training(steps=240, sequences_per_step=128, learning_rate=2e-5, warmup_steps=20)
    config = deepspeed_config(training, Execution(launcher="torchrun", processes=8, deepspeed_stage=3))
    assert config["train_batch_size"] == 128
    assert config["gradient_accumulation_steps"] == 16
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config["bf16"] == {"enabled": True}
    assert config["zero_optimization"]["stage"] == 3
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"]
    assert config["optimizer"]["params"]["betas"] == [0.9, 0.95]
    assert "auto" not in json.dumps(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_batch_size": 127}, r"train_batch_size 127 is not 1 \(micro-batch\) x 16 \(accumulation\) x 8"),
        ({"zero_optimization": {"stage": 3, "no_such_key": 1}}, "refuses its configuration .no_such_key"),
        ({"bf16": {"enabled": "perhaps"}}, "refuses its configuration .enabled"),
    ],
)
def test_a_configuration_that_deepspeed_refuses_is_told_before_the_launch(change, message):
    pytest.importorskip("deepspeed")
    training = Training(steps=240, sequences_per_step=128, learning_rate=2e-5, warmup_steps=20)
    config = deepspeed_config(training, Execution(launcher="torchrun", processes=8, deepspeed_stage=3))
    validate_deepspeed_config(config, processes=8)
    with pytest.raises(UserError, match=message):
        validate_deepspeed_config({**config, **change}, processes=8)


def test_deepspeed_counts_a_shared_sequence_once_for_each_process():
    training = Training(steps=1, sequences_per_step=8, learning_rate=2e-5, warmup_steps=0)
    shared = Execution(launcher="torchrun", processes=8, deepspeed_stage=3, sequence_parallel=4)
    pytest.importorskip("deepspeed")
    assert check_deepspeed(training, shared)["train_batch_size"] == 32


def test_srun_starts_one_task_a_node_named_by_the_artifact(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    two = execution(launcher="srun", nodes=2, srun_options="--gres=gpu:2 --comment='a b'")
    check_launch(two)
    out = tmp_path / "train" / ".uniform-1234abcd.partial"
    command = launch_command(two, out / "launch" / "request.json", out)
    assert command[:8] == [
        "srun", "--job-name=train/uniform-1234abcd", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1",
        "--kill-on-bad-exit=1", "--gres=gpu:2", "--comment=a b",
    ]  # fmt: skip
    assert command[8:] == [
        sys.executable, "-m", "tokenweight.training.srun_node", str(out / "launch" / "request.json"), str(out),
    ]  # fmt: skip


def test_nodes_of_srun_meet_where_the_first_says(tmp_path, monkeypatch):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"execution": execution(launcher="srun", nodes=2).model_dump(mode="json")}))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    options = []
    for place in ("0", "1"):
        monkeypatch.setenv("SLURM_PROCID", place)
        command = torchrun_command(request, tmp_path)
        options.append(dict(zip(command[3:13:2], command[4:13:2], strict=True)))
    first, second = options
    assert (first["--nnodes"], first["--node_rank"], first["--nproc_per_node"]) == ("2", "0", "2")
    assert second == {**first, "--node_rank": "1"}
    assert first["--master_addr"] == socket.gethostname()
    assert json.loads((tmp_path / "meeting.json").read_text())["slurm"] == {"job": "7", "step": "0"}


def test_a_node_of_srun_that_sees_no_first_one_says_so(tmp_path, monkeypatch):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"execution": execution(launcher="srun", nodes=2).model_dump(mode="json")}))
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setattr("tokenweight.training.srun_node.WAIT_SECONDS", 0.0)
    with pytest.raises(SystemExit, match="all nodes must see the store at the same path"):
        torchrun_command(request, tmp_path)
