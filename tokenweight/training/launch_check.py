"""Whether an execution can be launched at all and fits a training: told in a plan, before anything starts.

Loads no torch. What needs the model or the data is checked by tokenweight.training.run.
"""

from __future__ import annotations

import shlex
import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.version import Version

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution, Training

LEAST_DEEPSPEED = "0.19.2"  # before it, bf16 engines round the rotary frequencies


def check_launch(execution: Execution) -> None:
    """Raise UserError where an execution cannot be launched here: see `check_combination` and `check_installed`."""
    check_combination(execution)
    check_installed(execution)


def check_installed(execution: Execution) -> None:
    """Raise UserError where a package that an execution needs is missing or too old."""
    if "wandb" in execution.report_to and find_spec("wandb") is None:
        raise UserError("execution.report_to: 'wandb' is not installed; run `pip install wandb` or leave it out")
    if execution.launcher == "deepspeed" or execution.deepspeed_stage:
        check_deepspeed_version()


def check_combination(execution: Execution) -> None:
    """Raise UserError where launcher, nodes, processes and DeepSpeed stage do not go together, wherever it is to run."""
    if execution.processes % execution.nodes:
        raise UserError(
            f"execution.processes: {execution.processes} on all nodes do not divide by {execution.nodes} nodes; "
            "change one of them"
        )
    if execution.processes % execution.sequence_parallel:
        raise UserError(
            f"execution.sequence_parallel: {execution.sequence_parallel} does not divide execution.processes "
            f"({execution.processes}); change one"
        )
    checks = {"inline": _check_inline, "torchrun": _check_torchrun, "deepspeed": _check_deepspeed, "srun": _check_srun}
    checks[execution.launcher](execution)
    if execution.launcher != "srun":
        _refuse(execution, "srun_options")


def check_batch(training: Training, execution: Execution, field: str = "training") -> None:
    """Raise UserError unless an optimizer step has the same whole number of passes in every process."""
    per_pass = execution.sequences_per_pass
    if training.sequences_per_step % per_pass:
        raise UserError(
            f"{field}.sequences_per_step: {training.sequences_per_step} is not a multiple of processes times "
            f"micro_batch_sequences{' over sequence_parallel' if execution.sequence_parallel > 1 else ''} ({per_pass}); "
            "change one of them, e.g. by --execution micro_batch_sequences=1"
        )


def check_deepspeed_version() -> None:
    """Raise UserError unless a DeepSpeed is installed that trains right."""
    way = f"pip install 'deepspeed>={LEAST_DEEPSPEED}'"
    try:
        found = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        raise UserError(f"deepspeed: not installed, and launcher 'deepspeed' or a ZeRO stage needs it; {way}") from None
    if Version(found) < Version(LEAST_DEEPSPEED):
        raise UserError(f"deepspeed: {found} is installed, {LEAST_DEEPSPEED} or later is needed; {way}")


def _check_inline(execution: Execution) -> None:
    if execution.processes > 1 or execution.deepspeed_stage:
        raise UserError("execution.launcher: 'inline' is one process without DeepSpeed; set it to 'torchrun'")
    _refuse(execution, "rendezvous", "launch_prefix", "hostfile")


def _check_torchrun(execution: Execution) -> None:
    _refuse(execution, "hostfile")
    if execution.nodes == 1:
        _refuse(execution, "rendezvous", "launch_prefix", where="on one node")
    elif execution.rendezvous is None:
        raise UserError("execution.rendezvous: torchrun on several nodes needs one; give HOST:PORT of one of the nodes")
    _check_rendezvous(execution)
    if execution.launch_prefix is not None:
        try:
            program = shlex.split(execution.launch_prefix)[0]
        except (ValueError, IndexError):
            raise UserError(f"execution.launch_prefix: {execution.launch_prefix!r} is not a command") from None
        if shutil.which(program) is None:
            raise UserError(f"execution.launch_prefix: {program} is not found here; write for example 'srun -n 2 -N 2'")


def _check_srun(execution: Execution) -> None:
    _refuse(execution, "rendezvous", "launch_prefix", "hostfile")  # the nodes find one another
    try:
        shlex.split(execution.srun_options or "")
    except ValueError:
        raise UserError(f"execution.srun_options: {execution.srun_options!r} has an open quote; close it") from None
    if shutil.which("srun") is None:
        raise UserError(
            "execution.launcher: srun is not found here; run on a machine of the cluster, or choose another"
        )


def _check_deepspeed(execution: Execution) -> None:
    _refuse(execution, "launch_prefix")  # it starts the other nodes itself
    if execution.nodes == 1:
        _refuse(execution, "rendezvous", "hostfile", where="on one node")
        return
    if execution.hostfile is None:
        raise UserError("execution.hostfile: deepspeed on several nodes needs one, with lines `HOST slots=GPUS`")
    _check_rendezvous(execution)
    slots = read_hostfile(Path(execution.hostfile))
    if len(slots) < execution.nodes:
        raise UserError(
            f"execution.hostfile: {execution.hostfile} names {len(slots)} hosts for {execution.nodes} nodes"
        )
    for host, count in list(slots.items())[: execution.nodes]:
        if count < execution.processes_per_node:
            raise UserError(
                f"execution.hostfile: {host} has {count} slots, {execution.processes_per_node} processes a node "
                "are asked for; change one"
            )
    if shutil.which("pdsh") is None:
        raise UserError("pdsh: not found, and deepspeed starts other nodes with it; install it, or use torchrun")


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, from lines `HOST slots=N` (blank lines and # comments aside); UserError for other lines."""
    if not path.is_file():
        raise UserError(f"execution.hostfile: {path} does not exist; give a file with lines `HOST slots=GPUS`")
    slots: dict[str, int] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key, _, count = words[-1].partition("=")
        if len(words) != 2 or key != "slots" or not count.isdecimal() or words[0] in slots:
            raise UserError(f"execution.hostfile: {path} line {number} is not `HOST slots=GPUS`, each host once")
        slots[words[0]] = int(count)
    return slots


def _refuse(execution: Execution, *fields: str, where: str = "") -> None:
    for field in fields:
        if getattr(execution, field) is not None:
            raise UserError(f"execution.{field}: launcher {execution.launcher!r}{where and ' ' + where} takes none; "
                            "leave it out")  # fmt: skip


def _check_rendezvous(execution: Execution) -> None:
    if execution.rendezvous is None:
        return
    host, _, port = execution.rendezvous.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(
            f"execution.rendezvous: {execution.rendezvous!r} is not HOST:PORT; write for example node01:29500"
        )
