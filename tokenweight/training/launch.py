"""Training and scoring in several processes: torchrun, deepspeed or srun as a child that never outlives us."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from tokenweight.errors import StageError, UserError
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.parent_death import LEAVE_SIGNAL, stop_tree
from tokenweight.training.srun import cancel_left_over, srun_command
from tokenweight.training.stopping import GRACE_SECONDS as STOP_SECONDS
from tokenweight.training.stopping import VARIABLE, Stopped, ask_to_stop, stoppable

logger = logging.getLogger(__name__)

LAUNCH_FOLDER = "launch"  # in the artifact's directory, while processes run
PROGRESS_PREFIX = "tokenweight-progress "
GRACE_SECONDS = 20.0  # more than the guard below us takes


def launch(
    job: Literal["train", "score"], arguments: dict[str, Any], out_dir: Path, execution: Execution, progress: Progress
) -> None:
    """Run `job` in execution.processes processes (tokenweight.training.worker) and wait for it.

    The request and the first error lie in a folder of `out_dir`, which all nodes see as they see the model; it is
    removed at the end. Errors of a worker, on whatever node, are raised here as what they were there (UserError,
    StageError, Stopped); another failure is a StageError with the last lines of its output.
    """
    folder = out_dir / LAUNCH_FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    try:
        request = folder / "request.json"
        request.write_text(
            json.dumps(
                {
                    "job": job,
                    "arguments": arguments,
                    "execution": execution.model_dump(mode="json"),
                    "stop_file": os.environ.get(VARIABLE),
                }
            )
        )
        command = launch_command(execution, request, out_dir)
        if execution.launcher == "torchrun" and execution.nodes > 1 and execution.launch_prefix is None:
            logger.warning("%s: waits for this command on %d other nodes: %s", job, execution.nodes - 1,
                           shlex.join(command))  # fmt: skip
        threads = max(1, (os.cpu_count() or 1) // execution.processes_per_node)
        # Threads that wait without spinning: where processes share cores, spinning ones cost up to five times the run.
        defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        with stoppable(folder) as stop_file:
            status, tail = run_guarded(
                command,
                {**defaults, **os.environ},
                progress,
                stop_file=stop_file if job == "train" else None,
                deadline_seconds=execution.deadline_seconds,
            )
        _raise_worker_error(request.with_name("error.json"))
        if status != 0:
            raise StageError(f"{job}: {execution.launcher} ended with status {status}: " + " | ".join(tail[-5:]))
    finally:
        if execution.launcher == "srun":
            cancel_left_over(folder)
        shutil.rmtree(folder, ignore_errors=True)


def launch_command(execution: Execution, request: Path, out_dir: Path) -> list[str]:
    """The command that starts a request's processes, on one node or several."""
    worker = ["tokenweight.training.worker", str(request.resolve()), str(out_dir.resolve())]
    if execution.launcher == "deepspeed":
        return [sys.executable, "-m", "deepspeed.launcher.runner", *_deepspeed_options(execution), *worker]
    if execution.launcher == "srun":
        return srun_command(execution, request, out_dir)
    prefix = shlex.split(execution.launch_prefix or "")
    return [
        *prefix,
        sys.executable,
        "-m",
        "torch.distributed.run",
        *_torchrun_options(execution, request),
        "-m",
        *worker,
    ]


def _torchrun_options(execution: Execution, request: Path) -> list[str]:
    options = ["--nproc_per_node", str(execution.processes_per_node)]
    if execution.nodes == 1:
        return ["--standalone", *options]
    assert execution.rendezvous is not None
    # One id for all nodes and another for each run, so that a node of a run that was killed cannot join this one.
    run_id = hashlib.sha256(f"{request.resolve()} {request.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    meeting = ("--rdzv_backend", "c10d", "--rdzv_endpoint", execution.rendezvous, "--rdzv_id", run_id)
    return ["--nnodes", str(execution.nodes), *options, *meeting]


def _deepspeed_options(execution: Execution) -> list[str]:
    options = ["--module", "--no_local_rank", "--log_level", "error"]
    if execution.nodes > 1:
        assert execution.hostfile is not None
        options += ["--hostfile", execution.hostfile, "--num_nodes", str(execution.nodes)]
        options += ["--num_gpus", str(execution.processes_per_node)]
        if execution.rendezvous is not None:
            host, _, port = execution.rendezvous.rpartition(":")
            options += ["--master_addr", host, "--master_port", port]
        return options
    options += ["--hostfile", os.devnull, "--master_port", str(_free_port())]  # no hostfile: not a cluster's own either
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if execution.device != "cpu" and visible and all(part.isdecimal() for part in visible.split(",")):
        # With --num_gpus the launcher would take the first GPUs of the machine, whichever are ours.
        return [*options, "--include", "localhost:" + ",".join(visible.split(",")[: execution.processes])]
    return [*options, "--num_gpus", str(execution.processes)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_guarded(
    command: list[str],
    environment: dict[str, str],
    progress: Progress,
    *,
    stop_file: Path | None = None,
    deadline_seconds: float | None = None,
) -> tuple[int, list[str]]:
    """Run a command to its end: its status and last lines; its progress lines go to `progress`.

    It stays in our process group, so that whoever ends the group ends it too; the kernel ends it when we die;
    and an exception here (a cancelled task, Ctrl-C) stops its whole tree first. With `stop_file` the command is one
    that can end by itself: once it has made progress, and except at Ctrl-C, it is asked to by that file and has some
    seconds to. After `deadline_seconds` it is ended in the same way: a StageError.
    """
    guarded = [sys.executable, "-m", "tokenweight.training.parent_death", str(os.getpid()), *command]
    child = subprocess.Popen(
        guarded,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    tail: list[str] = []
    begun = late = False

    def end() -> None:
        try:
            if stop_file is not None and begun:
                ask_to_stop(stop_file)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_SECONDS)
        finally:
            if child.poll() is None:
                stop_tree(child, GRACE_SECONDS, LEAVE_SIGNAL)

    def expire() -> None:
        nonlocal late
        late = True
        end()

    timer = threading.Timer(deadline_seconds or 0, expire)
    timer.daemon = True
    if deadline_seconds is not None:
        timer.start()
    try:
        assert child.stdout is not None
        for line in child.stdout:
            _, is_progress, rest = line.partition(PROGRESS_PREFIX)  # other nodes' lines may begin with their name
            if is_progress:
                begun = True
                done, total, what = rest.split(maxsplit=2)
                progress(int(done), int(total), what.strip())
            elif line.strip():
                tail = [*tail[-19:], line.strip()]
        status = child.wait()
    except KeyboardInterrupt:
        stop_tree(child, GRACE_SECONDS, LEAVE_SIGNAL)
        raise
    except BaseException:
        threading.Thread(target=_drain, args=(child,), daemon=True).start()
        end()
        raise
    finally:
        timer.cancel()
    if late:
        raise StageError(f"ended after {deadline_seconds} s (execution.deadline_seconds); run again to go on")
    return status, tail


def _drain(child: subprocess.Popen[str]) -> None:
    """Read what nobody will: a child whose pipe is full cannot end."""
    assert child.stdout is not None
    for _ in child.stdout:
        pass


def _raise_worker_error(path: Path) -> None:
    if path.is_file():
        error = json.loads(path.read_text())
        kinds: dict[str, type[Exception]] = {"UserError": UserError, "Stopped": Stopped}
        raise kinds.get(error["kind"], StageError)(error["message"])
