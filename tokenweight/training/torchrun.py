"""torchrun on one node: `python -m tokenweight.training.torchrun LAUNCH_FOLDER LAUNCHER NODES PROCESSES_PER_NODE`.

With launcher `torchrun` nothing outside the node can reach it. Whatever address torchrun is given, its store listens on all of the
machine's: anyone on the network could join a run. So the socket is bound here, to 127.0.0.1 and a free port.

Launcher `srun`: a Slurm step (inside a job) or a job of its own, with one such torchrun on each of its nodes. The first
takes a free port and writes it into the folder, which all nodes see; the others wait for it.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tokenweight.files import replace_file
from tokenweight.recipes.schema import Execution

MEETING = "meeting.json"  # in the launch folder: where the nodes meet, and which step they are
WAIT_SECONDS = 600.0  # for the first node; shared file systems show a new file late
_SCANCEL_SECONDS = 30.0


def launch_command(execution: Execution, folder: Path) -> list[str]:
    """The command that starts a launch folder's processes, on one node or several.

    A Slurm step or job is named by the artifact's address.
    """
    node = [sys.executable, "-m", "tokenweight.training.torchrun", str(folder), execution.launcher]
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
    try:
        slurm = json.loads((folder / MEETING).read_text())["slurm"]
    except (OSError, ValueError):  # no task had begun: srun itself takes its job out of the queue when it is ended
        return
    inside = os.environ.get("SLURM_JOB_ID") == slurm["job"]
    name = f"{slurm['job']}.{slurm['step']}" if inside else slurm["job"]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--quiet", name], capture_output=True, timeout=_SCANCEL_SECONDS)


def main(folder: Path, launcher: str, nodes: str, processes_per_node: str) -> None:
    """Become torchrun of one node, numbered as by Slurm."""
    from torch.distributed import run

    rank = os.environ["SLURM_PROCID"] if launcher == "srun" else "0"
    host, port = meet(folder, rank) if launcher == "srun" else bind_rendezvous()
    options = ["--nnodes", nodes, "--node_rank", rank, "--nproc_per_node", processes_per_node]
    run.main(
        [*options, "--master_addr", host, "--master_port", str(port), "-m", "tokenweight.training.launch", str(folder)]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
