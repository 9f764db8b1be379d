"""Several processes: the same numbers as one, errors that come through, and no survivors."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
import torch
from safetensors.torch import load_file
from training_calls import TIMING_FIELDS, score, train

from tokenweight.context.extend import extend
from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Extension, Weighting
from tokenweight.training.launch import run_guarded

TWO = Execution(device="cpu", launcher="torchrun", processes=2)


def alive(pid):
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_progress_and_last_lines_of_a_child():
    steps = []
    script = "print('tokenweight-progress 3 7 steps'); print('about to fail'); raise SystemExit(3)"
    status, tail = run_guarded([sys.executable, "-c", script], dict(os.environ), lambda *args: steps.append(args))
    assert (status, tail, steps) == (3, ["about to fail"], [(3, 7, "steps")])


def test_an_interrupted_parent_leaves_no_child():
    script = (
        "import os, subprocess, sys, time;"
        "child = subprocess.Popen(['sleep', '600']);"
        "print('tokenweight-progress', os.getpid(), child.pid, 'steps', flush=True); time.sleep(600)"
    )
    pids = []

    def interrupt(done, total, what):
        pids.extend((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_guarded([sys.executable, "-c", script], dict(os.environ), interrupt)
    assert len(pids) == 2
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


def test_a_killed_parent_takes_its_child_along():
    script = (
        "import os, sys; from tokenweight.training.launch import run_guarded;"
        "report = lambda done, *_: print(done, flush=True);"
        "run_guarded([sys.executable, '-c', "
        '\'import os, time; print("tokenweight-progress", os.getpid(), 1, "steps", flush=True); time.sleep(600)\'],'
        " dict(os.environ), report)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert wait_until(lambda: not alive(child))


def test_what_a_killed_launcher_leaves_behind_is_ended_too():
    """As by a launcher that dies of TERM without a word to its processes."""
    orphan = "import os, time; print('tokenweight-progress', os.getpid(), 1, 'steps', flush=True); time.sleep(600)"
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}]).wait()"
    pids = []

    def interrupt(done, total, what):
        pids.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_guarded([sys.executable, "-c", script], dict(os.environ), interrupt)
    assert wait_until(lambda: not alive(pids[0]))


def test_other_nodes_lines_may_begin_with_their_name():
    steps = []
    run_guarded(["echo", "node02: tokenweight-progress 3 7 steps"], dict(os.environ), lambda *args: steps.append(args))
    assert steps == [(3, 7, "steps")]


SRUN = """#!/bin/sh
# As srun does on two nodes: the same command twice, and a bad status of either.
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_JOB_ID=7 SLURM_STEP_ID=0
SLURM_PROCID=1 "$@" & other=$!
SLURM_PROCID=0 "$@"; status=$?
wait $other || status=$?
exit $status
"""


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Execution(launcher="srun", device="cpu", processes=2, nodes=2)


def test_nothing_outside_the_node_can_reach_a_rendezvous():
    script = (
        "import os, psutil; addresses = {c.laddr.ip for c in psutil.Process(os.getppid()).net_connections() "
        "if c.status == psutil.CONN_LISTEN}; print('listens on', addresses, flush=True)"
    )
    torchrun = (
        "import sys; from torch.distributed import run; from tokenweight.training.launch import bind_rendezvous;"
        "host, port = bind_rendezvous();"
        "run.main(['--nproc_per_node', '1', '--master_addr', host, '--master_port', str(port), '--no_python', *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", torchrun, sys.executable, "-c", script]
    _, tail = run_guarded(command, dict(os.environ), no_progress)
    assert "listens on {'127.0.0.1'}" in tail


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def same_losses(one, two):
    assert len(one) == len(two) > 0
    for expected, got in zip(one, two, strict=True):
        for key in ("step", "weighted_nll", "nll", "grad_norm", "predictions"):
            assert got[key] == pytest.approx(expected[key], rel=1e-6), key


@pytest.mark.slow
def test_two_nodes_of_one_process_are_one_node_of_two(make_request, unfrozen, two_nodes, tmp_path):
    """Two torchruns that meet where the first says, both on this machine."""
    request = make_request(weighting=Weighting(postprocessing="dense", lambda_=0.5), scorer=unfrozen)
    train(request, tmp_path / "one", TWO, no_progress)
    steps = []
    recorded = train(request, tmp_path / "two", two_nodes, lambda *args: steps.append(args[:2]))
    same_losses(metrics(tmp_path / "one"), metrics(tmp_path / "two"))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert recorded["execution"]["nodes"] == 2
    assert not (tmp_path / "two" / "launch").exists()


@pytest.mark.slow
def test_an_error_on_any_node_is_one_clear_line(make_request, two_nodes, tmp_path):
    request = make_request(steps=8, learning_rate=1e30, warmup_steps=4, gradient_clip=1e9)
    with pytest.raises(StageError, match=r"^training stopped at step \d+"):
        train(request, tmp_path / "out", two_nodes, no_progress)


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(make_request, unfrozen, frozen, base_dir, chunk_dir, inline, tmp_path):
    scored = {}
    for name, execution in (("one", inline), ("two", TWO)):
        scored[name] = tmp_path / f"scores-{name}"
        score(
            base_dir,
            chunk_dir,
            scored[name],
            scorer=frozen,
            sequences=40,
            execution=execution,
            progress=no_progress,
        )
    names = sorted(p.name for p in scored["one"].iterdir())
    assert names == sorted(p.name for p in scored["two"].iterdir())
    assert all((scored["one"] / n).read_bytes() == (scored["two"] / n).read_bytes() for n in names)

    sparse = Weighting(postprocessing="sparse", kappa=0.3)
    for name, request in {
        "unfrozen": make_request(steps=4, weighting=sparse, scorer=unfrozen),
        "frozen": make_request(steps=4, weighting=sparse, scorer=frozen, score_dir=scored["one"]),
    }.items():
        rows = {}
        for count, execution in ((1, inline), (2, TWO)):
            out = tmp_path / f"{name}-{count}"
            train(request, out, execution, no_progress)
            rows[count] = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for one, two in zip(rows[1], rows[2], strict=True):
            for key in ("step", "weighted_nll", "nll", "weight_std", "zero_weight_share", "grad_norm", "predictions"):
                assert two[key] == pytest.approx(one[key], rel=1e-4), (name, key)
        one, two = (load_file(tmp_path / f"{name}-{count}/model/model.safetensors") for count in (1, 2))
        for key, tensor in one.items():
            torch.testing.assert_close(two[key], tensor, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tied"), [("fp32", True), ("fp32", False), ("bf16", True)])
def test_zero_3_on_two_processes_gives_the_numbers_of_one_process(
    make_request, make_scorer, unfrozen, tmp_path, precision, tied
):
    """The head is right under ZeRO-3, where its weight is whole only inside it. (Compiles an extension at first.)"""
    pytest.importorskip("deepspeed")
    sparse, dense = Weighting(postprocessing="sparse", kappa=0.3), Weighting(postprocessing="dense", lambda_=0.75)
    # In bf16 a random model's PMI is mostly rounding, and large steps amplify it: compare smooth weights, small steps.
    settings = {"weighting": sparse} if precision == "fp32" else {"weighting": dense, "learning_rate": 1e-4}
    request = make_request(steps=4, scorer=unfrozen, precision=precision, **settings)
    if not tied:
        extend(make_scorer(tie_word_embeddings=False), Extension(long_tokens=64, rope_theta=300_000.0), tmp_path)
        request = request.model_copy(update={"model_dir": tmp_path / "model"})
    zero = TWO.model_copy(update={"deepspeed_stage": 3, "save_every_steps": 2})
    train(request, tmp_path / "one", Execution(device="cpu"), no_progress)
    train(request, tmp_path / "zero", zero, no_progress)
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "zero")
    )
    tolerance = 1e-4 if precision == "fp32" else 0.05
    for expected, got in zip(one, two, strict=True):
        for key in ("nll", "weighted_nll", "zero_weight_share", "grad_norm", "learning_rate"):
            assert got[key] == pytest.approx(expected[key], rel=tolerance), key
    if precision == "fp32":
        expected, got = (load_file(tmp_path / name / "model/model.safetensors") for name in ("one", "zero"))
        start = load_file(request.model_dir / "model.safetensors")
        assert expected.keys() == got.keys() == start.keys()
        assert ("lm_head.weight" in got) is not tied
        for key, tensor in expected.items():
            torch.testing.assert_close(got[key], tensor, rtol=1e-2, atol=1e-3)
            moved = (tensor - start[key]).norm()
            assert (got[key] - tensor).norm() < 0.02 * moved, f"{key}: another direction"


@pytest.mark.slow
def test_checkpointing_changes_no_number_under_zero_3(make_request, unfrozen, tmp_path):
    pytest.importorskip("deepspeed")
    request = make_request(weighting=Weighting(postprocessing="sparse", kappa=0.3), scorer=unfrozen)
    zero = TWO.model_copy(update={"deepspeed_stage": 3})
    rows = {}
    for checkpointing in ("none", "keep_attention", "keep_projections"):
        out = tmp_path / checkpointing
        train(request, out, zero.model_copy(update={"checkpointing": checkpointing}), no_progress)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        rows[checkpointing] = [{k: v for k, v in row.items() if k not in TIMING_FIELDS} for row in lines]
        rows[checkpointing].append(load_file(out / "model" / "model.safetensors"))
    for checkpointing in ("keep_attention", "keep_projections"):
        torch.testing.assert_close(rows[checkpointing], rows["none"], rtol=0, atol=0)


@pytest.mark.slow
def test_errors_of_a_worker_come_through(make_request, tmp_path):
    request = make_request(steps=8, learning_rate=1e30, warmup_steps=4, gradient_clip=1e9)
    with pytest.raises(StageError, match=r"training stopped at step \d+"):
        train(request, tmp_path / "out", TWO, no_progress)
    with pytest.raises(UserError, match="not a multiple of processes times"):
        train(make_request(sequences_per_step=3), tmp_path / "out", TWO, no_progress)


@pytest.mark.slow
def test_a_killed_run_leaves_no_rank_and_resumes(make_request, unfrozen, tmp_path):
    request = make_request(steps=10, weighting=Weighting(postprocessing="dense", lambda_=0.5), scorer=unfrozen)
    script = (
        "import sys; from pathlib import Path;"
        "from tokenweight.recipes.schema import Execution; from training_calls import TrainRequest;"
        "from training_calls import train;"
        "train(TrainRequest.model_validate_json(sys.argv[1]), Path(sys.argv[2]),"
        " Execution(device='cpu', launcher='torchrun', processes=2, save_every_steps=2),"
        " lambda *args: print(*args, flush=True))"
    )
    out = tmp_path / "killed"
    arguments = [request.model_dump_json(by_alias=True), str(out)]
    parent = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    for line in parent.stdout:
        if line.startswith("5 "):
            break
    children = psutil.Process(parent.pid).children(recursive=True)
    parent.kill()
    parent.communicate()
    assert len(children) >= 3
    assert wait_until(lambda: not any(alive(child.pid) for child in children))
    execution = TWO.model_copy(update={"save_every_steps": 2})
    if not (out / "model").is_dir():
        assert train(request, out, execution, no_progress)["resumed_from_step"] in (4, 6, 8, 10)
    train(request, tmp_path / "whole", execution, no_progress)
    expected, got = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path / "whole", out))
    assert all(torch.equal(got[key], tensor) for key, tensor in expected.items())
