"""Training and scoring in several processes: torchrun or srun as a child that never outlives us.

`python -m tokenweight.training.launch LAUNCH_FOLDER LAUNCHER NODES PROCESSES_PER_NODE` is torchrun on one node, and
`torchrun ... -m tokenweight.training.launch LAUNCH_FOLDER` one rank of a launched call.

With launcher `torchrun` nothing outside the node can reach it. Whatever address torchrun is given, its store listens on
all of the machine's: anyone on the network could join a run. So the socket is bound here, to 127.0.0.1 and a free port.
Launcher `srun`: a Slurm step (inside a job) or a job of its own, with one such torchrun on each of its nodes. The first
takes a free port and writes it into the folder, which all nodes see; the others wait for it.

A training that is asked to stop ends after its current step, with a checkpoint (scoring after its shard); the next run
resumes there. It is asked by a file: that reaches every process on every node, whatever started them. There are two. One
lies in the artifact's launch folder and is made where a launched call is ended (TERM). The other is named by the
environment and is made by whoever knows that the time is nearly over, such as a Slurm job's script (docs/slurm.md).
"""

import json
import os
import pickle
import shlex
import shutil
import signal
import socket
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
from tokenweight.files import read_json, replace_file
from tokenweight.processes import LEAVE_SIGNAL, call_at_signals, end_with_parent, stop_tree
from tokenweight.progress import Progress, no_progress
from tokenweight.recipes.schema import Execution

PEERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets
LAUNCH_FOLDER = "launch"  # in the artifact's directory, while processes run
CALL, ERROR = "call.pickle", "error.pickle"  # in the launch folder
PROGRESS_PREFIX = "tokenweight-progress "
GRACE_SECONDS = 20.0  # more than the guard below us takes
VARIABLE = "TOKENWEIGHT_STOP_FILE"
STOP_FILE = "stop"  # in the launch folder
STOP_SECONDS = 20.0  # for the step and its checkpoint; Slurm kills 30 s after TERM unless KillWait says otherwise
MEETING = "meeting.json"  # in the launch folder: where the nodes meet, and which step they are
WAIT_SECONDS = 600.0  # for the first node; shared file systems show a new file late
_SCANCEL_SECONDS = 30.0

_active: set[Path] = set()  # stop files of what this process launched


class Stopped(StageError):
    """A training or a scoring ended early, as asked; what it has done is kept."""


def launch(call: partial[Any], out_dir: Path, execution: Execution, progress: Progress) -> None:
    """Make `call` here (launcher `inline`), or in execution.processes processes, each with its `progress`, and wait.

    The call and the first error lie in a folder of `out_dir`, which all nodes see. The call looks at :func:`asked_to_stop`.
    Errors of a worker, on whatever node, are raised here as what they were there (UserError, StageError, Stopped);
    another failure is a StageError with the last lines of its output.
    """
    if execution.launcher == "inline":
        # A job's shell may name processes that are none of this run's: torch would wait for them for ever.
        others = {name: os.environ.pop(name) for name in PEERS if name in os.environ}
        try:
            call(progress=progress)
        finally:
            os.environ.update(others)
        return
    folder = (out_dir / LAUNCH_FOLDER).resolve()
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    # Threads that wait without spinning: where processes share cores, spinning ones cost up to five times the run.
    threads = max(1, (os.cpu_count() or 1) // execution.processes_per_node)
    defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    if execution.launcher == "torchrun" and sys.platform == "linux":
        defaults["GLOO_SOCKET_IFNAME"] = "lo"  # as the rendezvous: one node needs no other address
    stop_file = folder / STOP_FILE
    _active.add(stop_file)
    try:
        (folder / CALL).write_bytes(pickle.dumps((os.environ.get(VARIABLE), call)))
        command = launch_command(execution, folder)
        status, tail = run_guarded(command, {**defaults, **os.environ}, progress, stop_file=stop_file)
        if (folder / ERROR).is_file():
            raise pickle.loads((folder / ERROR).read_bytes())
        if status != 0:
            raise StageError(f"{execution.launcher} ended with status {status}: " + " | ".join(tail[-5:]))
    finally:
        _active.discard(stop_file)
        if execution.launcher == "srun":
            cancel_left_over(folder)
        shutil.rmtree(folder, ignore_errors=True)


def run_guarded(
    command: list[str], environment: dict[str, str], progress: Progress, *, stop_file: Path | None = None
) -> tuple[int, list[str]]:
    """Run a command to its end: its status and last lines; its progress lines go to `progress`.

    It stays in our process group, so that whoever ends the group ends it too; the kernel ends it when we die;
    and an exception here (a cancelled task, Ctrl-C) stops its whole tree first. With `stop_file` the command is one
    that can end by itself: once it has made progress, and except at Ctrl-C, it is asked to by that file and has some
    seconds to.
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
    begun = False
    try:
        for line in child.stdout:
            _, is_progress, rest = line.partition(PROGRESS_PREFIX)  # other nodes' lines may begin with their name
            if is_progress:
                begun = True
                done, total, what = rest.split(maxsplit=2)
                progress(int(done), int(total), what.strip())
            elif line.strip():
                tail.append(line.strip())
        return child.wait(), list(tail)
    except BaseException as error:
        # Somebody must read on: a child whose pipe is full cannot end.
        threading.Thread(target=deque, args=(child.stdout, 0), daemon=True).start()
        try:
            if stop_file is not None and begun and not isinstance(error, KeyboardInterrupt):  # which does not wait
                ask_to_stop(stop_file)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_SECONDS)
        finally:
            if child.poll() is None:
                stop_tree(child, GRACE_SECONDS, LEAVE_SIGNAL)
        raise


# --- torchrun on one node, or by srun on several ---


def launch_command(execution: Execution, folder: Path) -> list[str]:
    """The command that starts a launch folder's processes; a Slurm step or job is named by the artifact's address."""
    node = [sys.executable, "-m", "tokenweight.training.launch", str(folder), execution.launcher]
    node += [str(execution.nodes), str(execution.processes_per_node)]
    if execution.launcher == "torchrun":
        return node
    artifact = folder.parent
    return [
        "srun",
        f"--job-name={artifact.parent.name}/{artifact.name.removeprefix('.').removesuffix('.partial')}",
        f"--nodes={execution.nodes}",
        f"--ntasks={execution.nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        *shlex.split(execution.srun_options or ""),
        *node,
    ]


def meet(folder: Path, rank: str) -> tuple[str, int]:
    """Host and port where the nodes of a Slurm step meet; the first one chooses."""
    meeting = folder / MEETING
    if rank == "0":
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        slurm = {"job": os.environ["SLURM_JOB_ID"], "step": os.environ["SLURM_STEP_ID"]}
        replace_file(meeting, json.dumps({"host": socket.gethostname(), "port": port, "slurm": slurm}))
    deadline = time.monotonic() + WAIT_SECONDS
    while not meeting.exists():
        if time.monotonic() > deadline:
            sys.exit(f"{meeting}: not seen within {WAIT_SECONDS:.0f} s; all nodes must see the store at the same path")
        time.sleep(0.2)
    found = json.loads(meeting.read_text())
    return found["host"], found["port"]


def bind_rendezvous() -> tuple[str, int]:
    """Host and port of this node's own, on which the store listens that torchrun will open."""
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        # Only this process opens the store as its master; the ranks are clients of it (torchrun tells them so).
        rendezvous: Any = static_tcp_rendezvous
        rendezvous.TCPStore = partial(rendezvous.TCPStore, master_listen_fd=listening.detach())
    return host, port


def cancel_left_over(folder: Path) -> None:
    """End the step or job of a launch whose srun is gone: nothing if it is over, as after every orderly end.

    An srun that is killed (by the kernel, for memory) does not end its tasks on other nodes.
    """
    if (meeting := read_json(folder / MEETING)) is None:
        return  # no task had begun: srun itself takes its job out of the queue when it is ended
    slurm = meeting["slurm"]
    inside = os.environ.get("SLURM_JOB_ID") == slurm["job"]
    name = f"{slurm['job']}.{slurm['step']}" if inside else slurm["job"]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--quiet", name], capture_output=True, timeout=_SCANCEL_SECONDS)


def become_torchrun(folder: Path, launcher: str, nodes: str, processes_per_node: str) -> None:
    """Become torchrun of one node, numbered as by Slurm."""
    from torch.distributed import run

    rank = os.environ["SLURM_PROCID"] if launcher == "srun" else "0"
    host, port = meet(folder, rank) if launcher == "srun" else bind_rendezvous()
    options = ["--nnodes", nodes, "--node_rank", rank, "--nproc_per_node", processes_per_node]
    options += ["--master_addr", host, "--master_port", str(port)]
    options += ["--log_dir", str(folder / "logs")]  # or each launch leaves a directory of its own in /tmp
    run.main([*options, "-m", "tokenweight.training.launch", str(folder)])


# --- Asking a call to stop ---


def asked_to_stop(out_dir: Path) -> bool:
    """Whether one of the two files is there that ask what writes into `out_dir` to stop."""
    named = os.environ.get(VARIABLE)
    return (out_dir / LAUNCH_FOLDER / STOP_FILE).exists() or (named is not None and Path(named).exists())


def ask_to_stop(file: Path) -> None:
    """Make the file, unless it is there (its time tells when it was made) or its directory is gone with the training."""
    with suppress(FileNotFoundError, FileExistsError):
        file.touch(exist_ok=False)


def stop_all() -> None:
    """Ask the launched trainings of this process to stop and wait for them, STOP_SECONDS at most; then end Slurm's."""
    for file in tuple(_active):
        ask_to_stop(file)
    deadline = time.monotonic() + STOP_SECONDS
    while _active and time.monotonic() < deadline:
        time.sleep(0.1)
    for file in tuple(_active):  # these hang, and whoever waits for them ends with us
        cancel_left_over(file.parent)


# --- One rank ---


def make_call(folder: Path) -> int:
    """Make a rank's call; an error goes to the launch folder, where the launcher looks for it."""
    end_with_parent(os.getppid(), signal.SIGKILL)
    stop_softly_at_term(folder)
    rank = os.environ["RANK"]
    try:
        stop_file, call = pickle.loads((folder / CALL).read_bytes())
        if stop_file is not None:
            os.environ[VARIABLE] = stop_file  # launchers do not carry the whole environment to other nodes
        call(progress=_report if rank == "0" else no_progress)
    except Exception as error:
        clear = isinstance(error, (UserError, StageError))
        with suppress(FileExistsError), (folder / ERROR).open("xb") as file:  # the first rank to fail has the cause
            pickle.dump(error if clear else StageError(f"rank {rank}: {type(error).__name__}: {error}"), file)
        if not clear:
            raise
        return 1
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    return 0


def stop_softly_at_term(folder: Path) -> None:
    """Let SIGTERM ask this rank's call to stop, unless the run has failed or was asked before: then it ends us.

    A scheduler sends TERM to every process of a job; a launcher sends it to the ranks that a failed one leaves behind.
    """
    file = folder / STOP_FILE

    def stop(number: int) -> None:
        asked_before = file.exists() and time.time() - file.stat().st_mtime > STOP_SECONDS / 2
        if asked_before or (folder / ERROR).exists():
            os._exit(128 + number)
        ask_to_stop(file)

    call_at_signals(stop, signal.SIGTERM)


def _report(done: float, total: int, what: str) -> None:
    print(f"{PROGRESS_PREFIX}{done} {total} {what}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        become_torchrun(Path(sys.argv[1]), *sys.argv[2:])
    else:
        sys.exit(make_call(Path(sys.argv[1])))
