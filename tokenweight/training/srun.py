"""Launcher `srun`: a Slurm step (inside a job) or a job of its own, with one torchrun on each of its nodes.

`srun ... python -m tokenweight.training.srun LAUNCH_FOLDER NODES PROCESSES_PER_NODE` is one node. The first takes a free
port and writes it into the folder, which all nodes see; the others wait for it. Then each becomes torchrun, numbered as
by Slurm.
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
from pathlib import Path

from tokenweight.files import replace_file
from tokenweight.recipes.schema import Execution

MEETING = "meeting.json"  # in the launch folder: where the nodes meet, and which step they are
WAIT_SECONDS = 600.0  # for the first node; shared file systems show a new file late
_SCANCEL_SECONDS = 30.0


def srun_command(execution: Execution, folder: Path) -> list[str]:
    """One task on each node, which starts that node's processes; the step or job is named by the artifact's address."""
    artifact = folder.parent
    return [
        "srun",
        f"--job-name={artifact.parent.name}/{artifact.name.removeprefix('.').removesuffix('.partial')}",
        f"--nodes={execution.nodes}",
        f"--ntasks={execution.nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        *shlex.split(execution.srun_options or ""),
        *(sys.executable, "-m", "tokenweight.training.srun"),
        *(str(folder), str(execution.nodes), str(execution.processes_per_node)),
    ]


def torchrun_command(folder: Path, nodes: str, processes_per_node: str) -> list[str]:
    """What this node runs; the first node also chooses where all meet."""
    rank, meeting = os.environ["SLURM_PROCID"], folder / MEETING
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
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", nodes, "--node_rank", rank, "--nproc_per_node", processes_per_node),
        *("--master_addr", found["host"], "--master_port", str(found["port"])),
        *("-m", "tokenweight.training.worker", str(folder)),
    ]


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


if __name__ == "__main__":
    command = torchrun_command(Path(sys.argv[1]), *sys.argv[2:])
    os.execv(command[0], command)
