"""Training and scoring in several processes: torchrun or srun as a child that never outlives us.

`torchrun ... -m tokenweight.training.launch LAUNCH_FOLDER` is one rank of a launched call.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.processes import LEAVE_SIGNAL, call_at_signals, end_with_parent, stop_tree
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.stopping import GRACE_SECONDS as STOP_SECONDS
from tokenweight.training.stopping import STOP_FILE, VARIABLE, ask_to_stop, stoppable
from tokenweight.training.torchrun import cancel_left_over, launch_command

LAUNCH_FOLDER = "launch"  # in the artifact's directory, while processes run
CALL, ERROR = "call.pickle", "error.pickle"  # in the launch folder
PROGRESS_PREFIX = "tokenweight-progress "
GRACE_SECONDS = 20.0  # more than the guard below us takes


def launch(
    call: partial[Any], out_dir: Path, execution: Execution, progress: Progress, *, stops_softly: bool = False
) -> None:
    """Make `call` here (launcher `inline`), or in execution.processes processes, each with its `progress`, and wait.

    The call and the first error lie in a folder of `out_dir`, which all nodes see as they see the model; it is
    removed at the end. `stops_softly`: the call ends by itself soon after it is asked to (tokenweight.training.stopping).
    Errors of a worker, on whatever node, are raised here as what they were there (UserError, StageError, Stopped);
    another failure is a StageError with the last lines of its output.
    """
    if execution.launcher == "inline":
        call(progress=progress)
        return
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
            raise pickle.loads((folder / ERROR).read_bytes())
        if status != 0:
            raise StageError(f"{execution.launcher} ended with status {status}: " + " | ".join(tail[-5:]))
    finally:
        if execution.launcher == "srun":
            cancel_left_over(folder)
        shutil.rmtree(folder, ignore_errors=True)


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


# --- One rank ---


def make_call(folder: Path) -> int:
    """Make a rank's call; a clear error goes to the launch folder."""
    end_with_parent(os.getppid(), signal.SIGKILL)
    rank = os.environ["RANK"]
    with (folder / CALL).open("rb") as file:
        stops_softly, stop_file = pickle.load(file)
        if stops_softly:
            stop_softly_at_term(folder)
        if stop_file is not None:
            os.environ[VARIABLE] = stop_file  # launchers do not carry the whole environment to other nodes
        try:
            call = pickle.load(file)
            call(progress=_report if rank == "0" else no_progress)
        except (UserError, StageError) as error:
            _leave_error(folder, error)
            return 1
        except Exception as error:
            _leave_error(folder, StageError(f"rank {rank}: {type(error).__name__}: {error}"))
            raise
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    return 0


def stop_softly_at_term(folder: Path) -> None:
    """Let SIGTERM ask this rank's training to stop, unless the run has failed or was asked before: then it ends us.

    A scheduler sends TERM to every process of a job; a launcher sends it to the ranks that a failed one leaves behind.
    """
    file = folder / STOP_FILE

    def stop(number: int) -> None:
        asked_before = file.exists() and time.time() - file.stat().st_mtime > STOP_SECONDS / 2
        if asked_before or (folder / ERROR).exists():
            os._exit(128 + number)
        ask_to_stop(file)

    call_at_signals(stop, signal.SIGTERM)


def _leave_error(folder: Path, error: Exception) -> None:
    """Leave the error where the launcher looks for it; the first rank to fail has the cause."""
    with suppress(FileExistsError), (folder / ERROR).open("xb") as file:
        pickle.dump(error, file)


def _report(done: float, total: int, what: str) -> None:
    print(f"{PROGRESS_PREFIX}{done} {total} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(make_call(Path(sys.argv[1])))
