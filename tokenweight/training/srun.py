"""Launcher `srun`: a Slurm step (inside a job) or a job of its own, with torchrun on each of its nodes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tokenweight.recipes.schema import Execution

MEETING = "meeting.json"  # in the launch folder: where the nodes meet, and which step they are
_SECONDS = 30.0  # for an answer of Slurm's controller


def srun_command(execution: Execution, request: Path, out_dir: Path) -> list[str]:
    """One task on each node, which starts that node's processes; the step or job is named by the artifact's address."""
    options = [
        f"--job-name={address_of(out_dir)}",
        f"--nodes={execution.nodes}",
        f"--ntasks={execution.nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        *shlex.split(execution.srun_options or ""),
    ]
    node = [sys.executable, "-m", "tokenweight.training.srun_node", str(request.resolve()), str(out_dir.resolve())]
    return ["srun", *options, *node]


def address_of(out_dir: Path) -> str:
    """`<stage>/<name>-<fingerprint>` of the artifact that is made in a directory of the store."""
    place = out_dir.resolve()
    return f"{place.parent.name}/{place.name.removeprefix('.').removesuffix('.partial')}"


def cancel_left_over(folder: Path) -> None:
    """End the step or job of a launch whose srun is gone: nothing if it is over, as after every orderly end."""
    try:
        slurm = json.loads((folder / MEETING).read_text())["slurm"]
    except (OSError, ValueError):  # no task had begun: srun itself takes its job out of the queue when it is ended
        return
    if shutil.which("scancel") is None:
        return
    inside = os.environ.get("SLURM_JOB_ID") == slurm["job"]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            ["scancel", "--quiet", f"{slurm['job']}.{slurm['step']}" if inside else slurm["job"]],
            capture_output=True,
            timeout=_SECONDS,
        )
