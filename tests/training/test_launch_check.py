"""What is told before a launch, the commands that launch, and DeepSpeed's configuration; nothing is started here."""

import json
import os
import pickle
import re
import signal
import socket
import sys
from functools import partial
from importlib import metadata

import pytest

from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.execution import check_launch, execution_for
from tokenweight.recipes.schema import Execution, Training
from tokenweight.training import launch as launching
from tokenweight.training import run
from tokenweight.training.launch import LAUNCH_FOLDER, VARIABLE, Stopped, launch, launch_command, make_call, meet
from tokenweight.training.run import check_deepspeed, deepspeed_config
from tokenweight.training.stages import Train


def execution(**fields):
    return Execution(**{"device": "cpu", "launcher": "torchrun", "processes": 4, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"launcher": "inline"}, "execution.launcher: 'inline' is one process"),
        ({"launcher": "inline", "processes": 1, "deepspeed_stage": 3}, "execution.launcher: 'inline' is one process"),
        ({"nodes": 3}, "execution.nodes: 3 does not divide execution.processes"),
        ({"nodes": 2}, "execution.nodes: several nodes need launcher 'srun'"),
        (
            {"launcher": "srun", "srun_options": "--comment='a"},
            'execution.srun_options: "--comment=\'a" has an open quote',
        ),
        ({"launcher": "srun"}, "execution.launcher: srun is not installed here"),
        ({"srun_options": "--exclusive"}, "execution.srun_options: they apply only to launcher 'srun'"),
        ({"offload_activations": True}, "set execution.checkpointing to 'full', 'keep_attention' or"),
        ({"sequence_parallel": 3}, "execution.sequence_parallel: 3 does not divide execution.processes"),
    ],
)
def test_combinations_that_cannot_be_launched_are_reported(fields, message, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=re.escape(message)):
        check_launch(execution(**fields))


def test_a_deepspeed_that_is_missing_or_old_is_told_with_the_way_out(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tokenweight.recipes.execution.metadata.version", version)
    with pytest.raises(
        UserError, match=re.escape("not installed") + ".*" + re.escape("pip install 'deepspeed>=0.19.2'")
    ):
        check_launch(execution(deepspeed_stage=3))
    monkeypatch.setattr("tokenweight.recipes.execution.metadata.version", lambda name: "0.16.3")
    with pytest.raises(UserError, match=re.escape("0.16.3 is installed, 0.19.2 or later is needed")):
        check_launch(execution(deepspeed_stage=2))


def test_a_plan_asks_for_no_package(monkeypatch):
    """One plans on a laptop what a cluster runs; `plan` lists what is missing."""

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tokenweight.recipes.execution.metadata.version", version)
    assert execution_for("paper", here=False, processes=2).deepspeed_stage == 3
    with pytest.raises(UserError, match="deepspeed: not installed"):
        execution_for("paper", processes=2)


def test_an_unknown_field_has_its_nearest_named():
    with pytest.raises(UserError, match=r"--execution gpu: no such field; did you mean gpus\?"):
        execution_for("smoke", ("gpu=1",), here=False)


def test_command_of_torchrun(tmp_path):
    command = launch_command(execution(), tmp_path)
    assert command == [
        sys.executable, "-m", "tokenweight.training.launch", str(tmp_path), "torchrun", "1", "4",
    ]  # fmt: skip


def test_deepspeed_configuration_says_what_the_recipe_says():
    training = Training(
        steps=240, sequences_per_step=128, learning_rate=2e-5, warmup_steps=20, beta1=0.8, beta2=0.7, epsilon=1e-6,
        weight_decay=0.2, gradient_clip=0.3,
    )  # fmt: skip
    config = deepspeed_config(training, Execution(launcher="torchrun", processes=8, deepspeed_stage=3))
    assert config["gradient_clipping"] == 0.3
    assert config["train_batch_size"] == 128
    assert config["gradient_accumulation_steps"] == 16
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config["bf16"] == {"enabled": True}
    assert config["zero_optimization"]["stage"] == 3
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"]
    assert config["optimizer"]["type"] == "AdamW"
    assert config["optimizer"]["params"] == {
        "lr": 2e-5, "betas": [0.8, 0.7], "eps": 1e-6, "weight_decay": 0.2, "torch_adam": True,
    }  # fmt: skip
    assert "auto" not in json.dumps(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zero_optimization": {"stage": 3, "no_such_key": 1}}, "refuses its configuration .no_such_key"),
        ({"bf16": {"enabled": "perhaps"}}, "refuses its configuration .enabled"),
    ],
)
def test_a_configuration_that_deepspeed_refuses_is_reported_before_the_launch(monkeypatch, change, message):
    pytest.importorskip("deepspeed")
    training = Training(steps=240, sequences_per_step=128, learning_rate=2e-5, warmup_steps=20)
    execution = Execution(launcher="torchrun", processes=8, deepspeed_stage=3)
    check_deepspeed(training, execution)
    monkeypatch.setattr(run, "deepspeed_config", lambda *given: {**deepspeed_config(*given), **change})
    with pytest.raises(UserError, match=message):
        check_deepspeed(training, execution)


def test_a_deepspeed_that_cannot_be_imported_is_reported_before_the_launch(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.config", None)
    training = Training(steps=1, sequences_per_step=8, learning_rate=2e-5, warmup_steps=0)
    with pytest.raises(UserError, match="installed, but cannot be imported"):
        check_deepspeed(training, Execution(launcher="torchrun", processes=8, deepspeed_stage=3))
    check_deepspeed(training, Execution())


def test_deepspeed_counts_a_shared_sequence_once_for_each_process():
    training = Training(steps=1, sequences_per_step=8, learning_rate=2e-5, warmup_steps=0)
    shared = Execution(launcher="torchrun", processes=8, deepspeed_stage=3, sequence_parallel=4)
    assert deepspeed_config(training, shared)["train_batch_size"] == 32


def test_srun_starts_one_task_a_node_named_by_the_artifact(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    two = execution(launcher="srun", nodes=2, srun_options="--gres=gpu:2 --comment='a b'")
    check_launch(two)
    out = tmp_path / "train" / ".uniform-1234abcd.partial"
    command = launch_command(two, out / "launch")
    assert command[:8] == [
        "srun", "--job-name=train/uniform-1234abcd", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1",
        "--kill-on-bad-exit=1", "--gres=gpu:2", "--comment=a b",
    ]  # fmt: skip
    assert command[8:] == [
        sys.executable, "-m", "tokenweight.training.launch", str(out / "launch"), "srun", "2", "2",
    ]  # fmt: skip


def test_nodes_of_srun_meet_where_the_first_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    first, second = meet(tmp_path, "0"), meet(tmp_path, "1")
    assert first == second
    assert first[0] == socket.gethostname()
    assert json.loads((tmp_path / "meeting.json").read_text())["slurm"] == {"job": "7", "step": "0"}


def test_a_node_of_srun_that_sees_no_first_one_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenweight.training.launch.WAIT_SECONDS", 0.0)
    with pytest.raises(SystemExit, match="all nodes must see the store at the same path"):
        meet(tmp_path, "1")


@pytest.mark.parametrize(("job", "name"), [("7", "7.0"), ("8", "7"), (None, "7")])
def test_what_is_left_of_a_launch_is_cancelled_its_step_or_its_job(job, name, tmp_path, monkeypatch, capfd):
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\necho to nobody\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", job) if job else monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    launching.cancel_left_over(tmp_path)
    assert not (tmp_path / "said").exists(), "nothing had begun"
    (tmp_path / "meeting.json").write_text(json.dumps({"slurm": {"job": "7", "step": "0"}}))
    launching.cancel_left_over(tmp_path)
    assert (tmp_path / "said").read_text() == f"--quiet {name}\n"
    assert capfd.readouterr().out == ""
    (tmp_path / "scancel").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    launching.cancel_left_over(tmp_path)  # no Slurm here


def test_a_node_becomes_torchrun_of_its_rank(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("torch.distributed.run.main", given.append)
    monkeypatch.setenv("SLURM_PROCID", "1")
    (tmp_path / "meeting.json").write_text(json.dumps({"host": "first", "port": 29500}))
    launching.become_torchrun(tmp_path, "srun", "2", "4")
    monkeypatch.setattr(launching, "bind_rendezvous", lambda: ("127.0.0.1", 7))
    launching.become_torchrun(tmp_path, "torchrun", "1", "8")
    common = ["-m", "tokenweight.training.launch", str(tmp_path)]
    logs = f" --log_dir {tmp_path}/logs"  # torchrun's own place would be a new directory in /tmp for each launch
    assert [" ".join(one[:-3]).removesuffix(logs) for one in given] == [
        "--nnodes 2 --node_rank 1 --nproc_per_node 4 --master_addr first --master_port 29500",
        "--nnodes 1 --node_rank 0 --nproc_per_node 8 --master_addr 127.0.0.1 --master_port 7",
    ]
    assert all(one[-3:] == common and " ".join(one[:-3]).endswith(logs) for one in given)


def test_an_inline_run_knows_no_processes_of_its_shell(monkeypatch, tmp_path):
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen = {}
    launch(partial(lambda progress: seen.update(os.environ)), tmp_path, Execution(device="cpu"), no_progress)
    assert seen
    assert not given.keys() & seen.keys()
    assert given.items() <= dict(os.environ).items()


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """A launch of two processes whose command is taken for run: what it was given, and what it shall answer."""
    seen = {"status": 0, "error": None}
    folder = (tmp_path / LAUNCH_FOLDER).resolve()

    def run_guarded(command, environment, progress, **how):
        seen.update(environment=environment, command=command, active=set(launching._active), **how)
        seen["call"] = pickle.loads((folder / "call.pickle").read_bytes())
        assert [file.name for file in folder.iterdir()] == ["call.pickle"]
        if seen["error"]:
            (folder / "error.pickle").write_bytes(pickle.dumps(seen["error"]))
        return seen["status"], [f"line {i}" for i in range(9)]

    folder.mkdir()
    (folder / "error.pickle").write_text("of a run that was killed")
    monkeypatch.setattr(launching, "run_guarded", run_guarded)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    for name in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, "/a/stop/file")
    how = Execution(device="cpu", launcher="torchrun", processes=2)
    yield seen, lambda: launch(partial(int, "7"), tmp_path, how, no_progress)
    assert not folder.exists()
    assert folder / "stop" not in launching._active


def test_a_launch_shares_the_cores_and_leaves_nothing(launched, tmp_path, monkeypatch):
    seen, start = launched
    start()
    environment, stop_file = seen["environment"], tmp_path.resolve() / LAUNCH_FOLDER / "stop"
    assert (environment["OMP_NUM_THREADS"], environment["GLOO_SOCKET_IFNAME"]) == ("3", "lo")
    assert (seen["stop_file"], seen["active"]) == (stop_file, {stop_file})
    assert (seen["call"][0], seen["call"][1]()) == ("/a/stop/file", 7)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "of the user")
    start()
    assert (seen["environment"]["OMP_NUM_THREADS"], seen["environment"]["GLOO_SOCKET_IFNAME"]) == ("1", "of the user")


def test_what_ended_a_launched_call_ends_the_launch(launched):
    seen, start = launched
    seen["status"] = -9
    with pytest.raises(StageError, match=r"torchrun ended with status -9: line 4 \| .* \| line 8$"):
        start()
    seen["error"] = Stopped("asked")
    with pytest.raises(Stopped, match=r"^asked$"):
        start()


def fails(progress, *, error):
    progress(1, 2, "steps")
    raise error


@pytest.mark.parametrize(
    ("error", "kept"),
    [(UserError("corpus: empty"), UserError("corpus: empty")), (KeyError("x"), StageError("rank 0: KeyError: 'x'"))],
)
def test_the_first_error_of_a_rank_is_kept_for_the_launcher(error, kept, tmp_path, monkeypatch, capsys):
    bound = []
    monkeypatch.setattr(launching, "end_with_parent", lambda *given: bound.append(given))
    monkeypatch.setattr(launching, "stop_softly_at_term", bound.append)
    monkeypatch.delenv(VARIABLE, raising=False)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        (tmp_path / "call.pickle").write_bytes(pickle.dumps(("/a/stop/file", partial(fails, error=error))))
        if isinstance(error, KeyError):
            with pytest.raises(KeyError):
                make_call(tmp_path)
        else:
            assert make_call(tmp_path) == 1
        assert os.environ.pop(VARIABLE) == "/a/stop/file"
    found = pickle.loads((tmp_path / "error.pickle").read_bytes())
    assert (type(found), str(found)) == (type(kept), str(kept))
    assert bound == [(os.getppid(), signal.SIGKILL), tmp_path] * 2
    assert capsys.readouterr().out == "tokenweight-progress 1 2 steps\n", "of the first rank alone"
    (tmp_path / "call.pickle").write_bytes(pickle.dumps((None, partial(dict))))
    assert make_call(tmp_path) == 0
    assert VARIABLE not in os.environ


def test_what_hugging_face_is_asked_for(tmp_path):
    training = Training(steps=5, sequences_per_step=8, learning_rate=2e-5, warmup_steps=0)
    how = Execution(device="cpu", micro_batch_sequences=2, save_every_steps=10)
    arguments = run.training_arguments(Train(training=training, seed=3), tmp_path, how)
    asked = {
        "max_steps": 5, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "logging_steps": 1,
        "logging_nan_inf_filter": False, "save_steps": 5, "save_total_limit": 2, "seed": 3, "full_determinism": False,
        "use_cpu": True, "ddp_backend": None, "ddp_find_unused_parameters": False, "dataloader_drop_last": True,
        "dataloader_pin_memory": False, "remove_unused_columns": False, "disable_tqdm": True, "report_to": [],
        "deepspeed": None, "n_gpu": 0,
    }  # fmt: skip
    assert {name: getattr(arguments, name) for name in asked} == asked
    arguments = run.training_arguments(
        Train(training=training), tmp_path, how.model_copy(update={"save_every_steps": 2})
    )
    assert arguments.save_steps == 2
    assert arguments.accelerator_config.use_configured_state is False


def test_what_a_record_says_of_all_steps():
    row = {
        "learning_rate": 0.0, "predictions": 10.0, "seconds": 1.0, "tokens_per_second": 8.0, "mfu": 0.5,
        "peak_memory_bytes": 7, "nll": 4.0, "weighted_nll": 3.0, "zero_weight_share": 0.5,
    }  # fmt: skip
    later = {"learning_rate": 1e-5, "seconds": 3.0, "tokens_per_second": 4.0, "mfu": 0.1, "peak_memory_bytes": 5}
    last = row | later | {"nll": 2.0, "weighted_nll": 1.0, "zero_weight_share": 0.0, "fp8_overlap": 0.9}
    expected = {
        "steps": 2, "effective_steps": 1, "predictions": 20, "seconds": 4.0, "tokens_per_second": 5.0,
        "mfu": pytest.approx(0.2), "peak_memory_bytes": 7, "first_nll": 4.0, "last_nll": 2.0, "last_weighted_nll": 1.0,
        "zero_weight_share": 0.25, "fp8_overlap": 0.9,
    }  # fmt: skip
    assert run._summary([row, last]) == expected
    without = run._summary([row | {"mfu": None}, last, last | {"fp8_overlap": 0.8}])
    assert (without["mfu"], without["fp8_overlap"]) == (None, 0.8)
