"""Training and scoring in several processes: torchrun or srun as a child that never outlives us."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.processes import LEAVE_SIGNAL, stop_tree
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.srun import cancel_left_over, srun_command
from tokenweight.training.stopping import GRACE_SECONDS as STOP_SECONDS
from tokenweight.training.stopping import VARIABLE, Stopped, ask_to_stop, stoppable

LAUNCH_FOLDER = "launch"  # in the artifact's directory, while processes run
CALL, ERROR = "call.pickle", "error.json"  # in the launch folder
PROGRESS_PREFIX = "tokenweight-progress "
GRACE_SECONDS = 20.0  # more than the guard below us takes


def launch(
    call: partial[Any], out_dir: Path, execution: Execution, progress: Progress, *, stops_softly: bool = False
) -> None:
    """Make `call` in execution.processes processes (tokenweight.training.worker), each with its `progress`, and wait.

    The call and the first error lie in a folder of `out_dir`, which all nodes see as they see the model; it is
    removed at the end. `stops_softly`: the call ends by itself soon after it is asked to (tokenweight.training.stopping).
    Errors of a worker, on whatever node, are raised here as what they were there (UserError, StageError, Stopped);
    another failure is a StageError with the last lines of its output.
    """
    folder = (out_dir / LAUNCH_FOLDER).resolve()
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    # Threads that wait without spinning: where processes share cores, spinning ones cost up to five times the run.
    threads = max(1, (os.cpu_count() or 1) // execution.processes_per_node)
    defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    if execution.launcher == "torchrun" and sys.platform == "linux":
        defaults["GLOO_SOCKET_IFNAME"] = "lo"  # as the rendezvous: one node needs no other address
    try:
        with (folder / CALL).open("wb") as file:
            pickle.dump((stops_softly, os.environ.get(VARIABLE)), file)  # read before the call, which may load torch
            pickle.dump(call, file)
        with stoppable(folder) as stop_file:
            status, tail = run_guarded(
                launch_command(execution, folder),
                {**defaults, **os.environ},
                progress,
                stop_file=stop_file if stops_softly else None,
                deadline_seconds=execution.deadline_seconds,
            )
        if (folder / ERROR).is_file():
            kind, message = json.loads((folder / ERROR).read_text())
            kinds: dict[str, type[Exception]] = {"UserError": UserError, "Stopped": Stopped}
            raise kinds.get(kind, StageError)(message)
        if status != 0:
            raise StageError(f"{execution.launcher} ended with status {status}: " + " | ".join(tail[-5:]))
    finally:
        if execution.launcher == "srun":
            cancel_left_over(folder)
        shutil.rmtree(folder, ignore_errors=True)


def launch_command(execution: Execution, folder: Path) -> list[str]:
    """The command that starts a launch folder's processes, on one node or several."""
    if execution.launcher == "srun":
        return srun_command(execution, folder)
    torchrun = [sys.executable, "-m", "tokenweight.training.loopback", "--nproc_per_node", str(execution.processes)]
    return [*torchrun, "-m", "tokenweight.training.worker", str(folder)]


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
    child = subprocess.Popen(
        [sys.executable, "-m", "tokenweight.processes", str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    assert child.stdout is not None
    tail: deque[str] = deque(maxlen=20)
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
        for line in child.stdout:
            _, is_progress, rest = line.partition(PROGRESS_PREFIX)  # other nodes' lines may begin with their name
            if is_progress:
                begun = True
                done, total, what = rest.split(maxsplit=2)
                progress(int(done), int(total), what.strip())
            elif line.strip():
                tail.append(line.strip())
        status = child.wait()
    except KeyboardInterrupt:
        stop_tree(child, GRACE_SECONDS, LEAVE_SIGNAL)
        raise
    except BaseException:
        # Somebody must read on: a child whose pipe is full cannot end.
        threading.Thread(target=deque, args=(child.stdout, 0), daemon=True).start()
        end()
        raise
    finally:
        timer.cancel()
    if late:
        raise StageError(f"ended after {deadline_seconds} s (execution.deadline_seconds); run again to resume")
    return status, list(tail)
