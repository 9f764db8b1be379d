"""One node of a launch by srun: `srun ... python -m tokenweight.training.srun_node request.json out_dir`.

The first task takes a free port of its node and writes it beside the request, which all nodes see; the others wait for
it. Then each becomes torchrun, with its place among the nodes as Slurm numbers them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from tokenweight.recipes.schema import Execution
from tokenweight.training.srun import MEETING

WAIT_SECONDS = 600.0  # for the first task; shared file systems show a new file late


def torchrun_command(request: Path, out_dir: Path) -> list[str]:
    """What this node runs; on the first node it also chooses where all meet."""
    execution = Execution.model_validate(json.loads(request.read_text())["execution"])
    place = int(os.environ["SLURM_PROCID"])
    meeting = request.with_name(MEETING)
    if place == 0:
        _announce(meeting)
    host, port = _wait_for(meeting)
    options = ["--nnodes", str(execution.nodes), "--node_rank", str(place)]
    options += [
        "--nproc_per_node",
        str(execution.processes_per_node),
        "--master_addr",
        host,
        "--master_port",
        str(port),
    ]
    worker = ["-m", "tokenweight.training.worker", str(request), str(out_dir)]
    return [sys.executable, "-m", "torch.distributed.run", *options, *worker]


def _announce(meeting: Path) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    slurm = {"job": os.environ["SLURM_JOB_ID"], "step": os.environ["SLURM_STEP_ID"]}
    partial = meeting.with_suffix(".partial")
    partial.write_text(json.dumps({"host": socket.gethostname(), "port": port, "slurm": slurm}))
    partial.replace(meeting)


def _wait_for(meeting: Path) -> tuple[str, int]:
    deadline = time.monotonic() + WAIT_SECONDS
    while not meeting.exists():
        if time.monotonic() > deadline:
            sys.exit(f"{meeting}: not seen within {WAIT_SECONDS:.0f} s; all nodes must see the store at the same path")
        time.sleep(0.2)
    told = json.loads(meeting.read_text())
    return told["host"], told["port"]


if __name__ == "__main__":
    command = torchrun_command(Path(sys.argv[1]), Path(sys.argv[2]))
    os.execv(command[0], command)
