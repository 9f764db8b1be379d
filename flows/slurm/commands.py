"""Slurm's own commands, which are on every login node: sbatch, scontrol, scancel. No accounting, no REST daemon."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass

from prefect.exceptions import InfrastructureError

# States from which a job goes on; `Requeued` and `preempted` jobs come back as PENDING.
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset(
    {"CONFIGURING", "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
GONE = "GONE"  # Slurm forgets a job some minutes after its end (MinJobAge)


@dataclass(frozen=True)
class Job:
    """What `scontrol show job` says of a job."""

    state: str  # as Slurm spells it, or GONE
    reason: str = ""
    restarts: int = 0
    exit_code: str = ""  # STATUS:SIGNAL
    nodes: str = ""
    output: str = ""

    @property
    def waits(self) -> bool:
        """In the queue, for the first time or again."""
        return self.state in WAITING

    @property
    def over(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.state not in WAITING | RUNNING


async def submit(script: str) -> str:
    """Submit a batch script and return its job's number; raises InfrastructureError with what sbatch says."""
    return (await _run("sbatch", "--parsable", stdin=script)).strip().partition(";")[0]


async def show(job: str) -> Job:
    """What Slurm knows of a job; raises InfrastructureError while its controller does not answer."""
    try:
        return parse(await _run("scontrol", "show", "job", "--oneliner", job))
    except InfrastructureError as error:
        if "Invalid job id" in str(error):
            return Job(GONE)
        raise


async def cancel(job: str) -> None:
    """Cancel a job, waiting or running; one that is over is left."""
    await _run("scancel", "--quiet", job)


def parse(line: str) -> Job:
    """The fields that we use of a line of `scontrol show job --oneliner`."""
    found = dict(reversed(re.findall(r"(?:^|\s)(\w+)=(\S*)", line)))  # the first of a name: a comment may have others
    names = ("JobState", "Reason", "Restarts", "ExitCode", "NodeList", "StdOut")
    values = (found.get(name, "") for name in names)
    state, reason, restarts, exit_code, nodes, output = ("" if v in ("(null)", "None") else v for v in values)
    return Job(state, reason, int(restarts or 0), exit_code, nodes, output)


async def _run(*command: str, stdin: str | None = None) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        raise InfrastructureError(f"{command[0]} is not found; start the worker on a machine of the cluster") from None
    output, errors = await process.communicate((stdin or "").encode())
    if process.returncode:
        raise InfrastructureError(f"{shlex.join(command)}: {errors.decode(errors='replace').strip()}")
    return output.decode(errors="replace")
