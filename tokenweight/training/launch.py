"""Training and scoring in several processes: torchrun as a child that never outlives us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import psutil

from tokenweight.errors import StageError, UserError
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution

PROGRESS_PREFIX = "tokenweight-progress "
GRACE_SECONDS = 20.0


def launch(
    job: Literal["train", "score"], arguments: dict[str, Any], out_dir: Path, execution: Execution, progress: Progress
) -> None:
    """Run `job` in execution.processes processes by torchrun (tokenweight.training.worker) and wait for it.

    Errors of a worker are raised here as what they were there (UserError, StageError); another failure is a
    StageError with the last lines of its output.
    """
    with tempfile.TemporaryDirectory(prefix="tokenweight-") as folder:
        request = Path(folder) / "request.json"
        request.write_text(
            json.dumps({"job": job, "arguments": arguments, "execution": execution.model_dump(mode="json")})
        )
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc_per_node", str(execution.processes)),
            *("-m", "tokenweight.training.worker", str(request), str(out_dir)),
        ]
        threads = max(1, (os.cpu_count() or 1) // execution.processes)
        # Threads that wait without spinning: where processes share cores, spinning ones cost up to five times the run.
        defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        status, tail = run_guarded(command, {**defaults, **os.environ}, progress)
        _raise_worker_error(request.with_name("error.json"))
        if status != 0:
            raise StageError(f"{job}: torchrun ended with status {status}: " + " | ".join(tail[-5:]))


def run_guarded(command: list[str], environment: dict[str, str], progress: Progress) -> tuple[int, list[str]]:
    """Run a command to its end: its status and last lines; its progress lines go to `progress`.

    It stays in our process group, so that whoever ends the group ends it too; the kernel ends it when we die;
    and an exception here (a cancelled task, Ctrl-C) stops its whole tree first.
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
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(PROGRESS_PREFIX):
                done, total, what = line.removeprefix(PROGRESS_PREFIX).split(maxsplit=2)
                progress(int(done), int(total), what.strip())
            elif line.strip():
                tail = [*tail[-19:], line.strip()]
        return child.wait(), tail
    except BaseException:
        stop_tree(child)
        raise


def stop_tree(child: subprocess.Popen[str], grace_seconds: float = GRACE_SECONDS) -> None:
    """End a child and all its descendants: TERM and time, so that torchrun stops its ranks, then KILL what is left."""
    try:
        tree = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        tree = []
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_seconds)
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    child.kill()
    child.wait()
    psutil.wait_procs(tree, timeout=1)


def _raise_worker_error(path: Path) -> None:
    if path.is_file():
        error = json.loads(path.read_text())
        raise (UserError if error["kind"] == "UserError" else StageError)(error["message"])
