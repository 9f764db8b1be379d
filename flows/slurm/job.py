"""The job of a flow run: what a user may say about it, the batch script that it becomes, and what Slurm says of it.

Slurm's own commands are on every login node: sbatch, scontrol, scancel. No accounting, no REST daemon.
"""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import anyio
from prefect.exceptions import InfrastructureError
from prefect.workers.base import BaseJobConfiguration, BaseVariables
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from tokenweight.flat import TEXTS
from tokenweight.webpage import plain_environment

_JOB_NAME_CHARACTERS = 60


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line of printable characters")
    return value


def _option(value: str) -> str:
    if not value.startswith("--"):
        raise ValueError("write an sbatch option such as --exclusive, without #SBATCH")
    return _one_line(value)


def _described(schema: dict[str, Any]) -> None:
    for name, text in TEXTS["SlurmOptions"].items():
        schema["properties"][name]["description"] = text


Line = Annotated[str, AfterValidator(_one_line)]


class SlurmOptions(BaseModel):
    """The job variables (options.toml has their sbatch options); what is not given is the cluster's default."""

    model_config = ConfigDict(json_schema_extra=_described)

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = Field(default=None, title="QOS")
    gres: Line | None = None
    time: Line | None = None
    nodes: PositiveInt = 1
    cpus: PositiveInt | None = None
    memory: Line | None = None
    extra: list[Annotated[str, AfterValidator(_option)]] = []
    requeue: bool = True
    stop_seconds_before_end: PositiveInt | None = None
    modules: list[Line] = []
    setup: list[str] = []
    container: Line | None = None
    container_runtime: Literal["apptainer", "pyxis"] = "apptainer"
    container_mounts: list[Line] = []
    python: Line | None = None
    working_dir: Line | None = None
    log_dir: Line = "slurm-logs"
    poll_seconds: PositiveFloat = 10.0

    @model_validator(mode="after")
    def _stopping_needs_requeue(self) -> Self:
        if self.stop_seconds_before_end is not None and not self.requeue:
            raise ValueError(
                "stop_seconds_before_end: needs a job that Slurm may requeue; set requeue, or leave it out"
            )
        return self


class SlurmVariables(SlurmOptions, BaseVariables):
    """What the work pool's page offers."""


class SlurmConfiguration(SlurmOptions, BaseJobConfiguration):
    def prepare_for_flow_run(self, *given: Any, **named: Any) -> None:
        """Take name and environment from the flow run; a command only where a user gave one (else the script has it)."""
        command = self.command
        super().prepare_for_flow_run(*given, **named)
        self.command = command

    def script(self) -> str:
        """The batch script; every value is quoted, except the lines of `setup`, which are shell."""
        python = self.python or ("python3" if self.container else sys.executable)
        return _TEMPLATE.render(
            job=self,
            name=re.sub(r"[^\w.:/@+=-]+", "-", self.name or "flow-run", flags=re.ASCII)[:_JOB_NAME_CHARACTERS],
            directory=str(self._working_path()),
            environment={name: value for name, value in self.env.items() if value is not None},
            prefix=shlex.join(self.container_command()),
            python=python,
            command=self.command or f"{shlex.quote(python)} -m prefect flow-run execute",
            log_dir=str(self.log_path()),
        )

    def container_command(self) -> list[str]:
        """What comes before the command; empty without a container."""
        if self.container is None:
            return []
        places = dict.fromkeys(str(place) for place in (self._working_path(), self.log_path()))
        mounts = [*(f"{place}:{place}" for place in places), *self.container_mounts]
        if self.container_runtime == "pyxis":
            options = {"image": self.container, "mounts": ",".join(mounts), "workdir": self._working_path()}
            return ["srun", "--ntasks=1", *(f"--container-{name}={value}" for name, value in options.items())]
        gpus = ["--nv"] if "gpu" in (self.gres or "") else []
        binds = [part for mount in mounts for part in ("--bind", mount)]
        return ["apptainer", "exec", *gpus, *binds, "--pwd", str(self._working_path()), self.container]

    def log_path(self) -> Path:
        return self._working_path() / self.log_dir

    def _working_path(self) -> Path:
        return Path(self.working_dir or ".").absolute()


def _quoted(option: str) -> str:
    """An option as sbatch reads it in a script: in double quotes where it has blanks, quotes or a hash."""
    return json.dumps(option, ensure_ascii=False) if re.search(r"[\s\"'#\\]", option) else option


_ENVIRONMENT = plain_environment(Path(__file__).parent)  # shell: values go through `quote`
_ENVIRONMENT.filters.update(quote=lambda value: shlex.quote(str(value)), quoted=_quoted)
_TEMPLATE = _ENVIRONMENT.get_template("job.sh.jinja")


# States from which a job continues; `Requeued` and `preempted` jobs come back as PENDING.
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
    await _run("scancel", "--quiet", job)


def parse(line: str) -> Job:
    """The fields that we use of a line of `scontrol show job --oneliner`."""
    found = dict(reversed(re.findall(r"(?:^|\s)(\w+)=(\S*)", line)))  # the first of a name: a comment may have others
    names = ("JobState", "Reason", "Restarts", "ExitCode", "NodeList", "StdOut")
    values = (found.get(name, "") for name in names)
    state, reason, restarts, exit_code, nodes, output = ("" if v in ("(null)", "None") else v for v in values)
    return Job(state, reason, int(restarts or 0), exit_code, nodes, output)


async def _run(*command: str, stdin: str = "") -> str:
    try:
        process = await anyio.run_process(command, input=stdin.encode(), check=False)
    except FileNotFoundError:
        raise InfrastructureError(
            f"{command[0]} is not installed here; start the worker on a machine of the cluster"
        ) from None
    if process.returncode:
        raise InfrastructureError(f"{shlex.join(command)}: {process.stderr.decode(errors='replace').strip()}")
    return process.stdout.decode(errors="replace")
