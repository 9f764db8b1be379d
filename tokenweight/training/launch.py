"""Training and scoring in several processes: torchrun or srun as a child that never outlives us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from tokenweight.errors import StageError, UserError
from tokenweight.processes import LEAVE_SIGNAL, stop_tree
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.srun import cancel_left_over, srun_command
from tokenweight.training.stopping import GRACE_SECONDS as STOP_SECONDS
from tokenweight.training.stopping import VARIABLE, Stopped, ask_to_stop, stoppable

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
        threads = max(1, (os.cpu_count() or 1) // execution.processes_per_node)
        # Threads that wait without spinning: where processes share cores, spinning ones cost up to five times the run.
        defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        if execution.launcher == "torchrun" and sys.platform == "linux":
            defaults["GLOO_SOCKET_IFNAME"] = "lo"  # as the rendezvous: one node needs no other address
        with stoppable(folder) as stop_file:
            status, tail = run_guarded(
                launch_command(execution, request, out_dir),
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
    if execution.launcher == "srun":
        return srun_command(execution, request, out_dir)
    torchrun = ["-m", "tokenweight.training.loopback", "--nproc_per_node", str(execution.processes)]
    worker = ["-m", "tokenweight.training.worker", str(request.resolve()), str(out_dir.resolve())]
    return [sys.executable, *torchrun, *worker]


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
    guarded = [sys.executable, "-m", "tokenweight.processes", str(os.getpid()), *command]
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
        raise StageError(f"ended after {deadline_seconds} s (execution.deadline_seconds); run again to resume")
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
