"""The worker: one Slurm job for each flow run, watched to its end, and what a job does that Slurm starts again."""

import os
import time
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import InfrastructureError, InfrastructureNotFound, ObjectNotFound
from prefect.states import Cancelled, Crashed, Pending
from prefect.workers.base import BaseWorker, BaseWorkerResult

from tokenweight.flows.slurm.job import Job, SlurmConfiguration, SlurmVariables, cancel, show, submit

# A running flow run ends itself when it is cancelled; one that has not done so by then is ended through its job.
CANCEL_SECONDS = 90.0
POLL_SECONDS = 10.0


class SlurmWorker(BaseWorker[SlurmConfiguration, SlurmVariables, BaseWorkerResult]):
    """Submits each flow run by sbatch and settles the states that the flow run itself cannot report."""

    type = "tokenweight-slurm"  # `slurm` is the type of the package prefect-slurm
    job_configuration = SlurmConfiguration
    job_configuration_variables = SlurmVariables
    _description = "Run each flow run as a job of Slurm, through sbatch, scontrol and scancel."
    _display_name = "Slurm (tokenweight)"

    async def setup(self) -> None:
        """Prepare, and watch the jobs that an earlier worker of this pool has left."""
        await super().setup()
        states = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
        still_open = FlowRunFilter.model_validate({"state": {"type": {"any_": states}}})
        pool = WorkPoolFilter.model_validate({"name": {"any_": [self._work_pool_name]}})
        try:
            left = await self.client.read_flow_runs(flow_run_filter=still_open, work_pool_filter=pool)
        except httpx.HTTPError as error:
            self._logger.warning(
                "The Prefect API does not answer; jobs of an earlier worker are not watched: %s", error
            )
            return
        assert self._runs_task_group is not None  # setup has made it
        for flow_run in left:
            if (job := flow_run.infrastructure_pid) is not None:
                self._logger.info("Watching Slurm job %s of flow run '%s'", job, flow_run.name)
                self._runs_task_group.start_soon(self._watch, flow_run, job, POLL_SECONDS)

    async def run(
        self, flow_run: FlowRun, configuration: SlurmConfiguration, task_status: anyio.abc.TaskStatus[Any] | None = None
    ) -> BaseWorkerResult:
        """Submit the flow run's job and watch it to its end; the flow run's state then says how it ended."""
        configuration.log_path().mkdir(parents=True, exist_ok=True)
        job = await submit(configuration.script())
        self.get_flow_run_logger(flow_run).info("Submitted as Slurm job %s", job)
        if task_status is not None:
            task_status.started(job)
        await self._watch(flow_run, job, configuration.poll_seconds)
        return BaseWorkerResult(identifier=job, status_code=0)  # another would make Prefect call the run crashed again

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: SlurmConfiguration, grace_seconds: int = 30
    ) -> None:
        """Cancel a job; raises InfrastructureNotFound where it is over. Slurm's KillWait is the grace."""
        if (await show(infrastructure_pid)).over:
            raise InfrastructureNotFound(f"Slurm job {infrastructure_pid} has ended")
        await cancel(infrastructure_pid)

    async def _watch(self, flow_run: FlowRun, number: str, poll_seconds: float) -> None:
        """Follow a job to its end: cancel it where the flow run is, and say where Slurm does what the run cannot say."""
        logger = self.get_flow_run_logger(flow_run)
        restarts, last, cancelling_since = 0, "", None
        while True:
            try:
                job = await show(number)
                if job.over:
                    break
                state = await self._state_of(flow_run.id)
                if (what := f"{job.state} {job.reason}".strip()) != last:
                    logger.info("Slurm job %s: %s %s", number, what, job.nodes)
                    last = what
                if state is None or state.is_cancelling() or state.is_cancelled():
                    cancelling_since = cancelling_since or time.monotonic()
                    if job.waits or state is None or time.monotonic() - cancelling_since > CANCEL_SECONDS:
                        await cancel(number)
                        await self._set_state(flow_run.id, Cancelled(message=f"Slurm job {number} was cancelled"))
                elif job.waits and job.restarts > restarts and may_run_again(state):
                    restarts = job.restarts
                    logger.warning("Slurm requeued job %s (start %d)", number, restarts + 1)
                    await self._set_state(flow_run.id, _requeued())
            except (InfrastructureError, httpx.HTTPError) as error:  # Slurm's controller or Prefect's server restarts
                logger.warning("Slurm job %s: no answer, asking again: %s", number, error)
            await anyio.sleep(poll_seconds)
        await self._settle(flow_run.id, number, job)

    async def _settle(self, flow_run_id: UUID, number: str, job: Job) -> None:
        """Give a flow run whose job is over a final state, unless it has one."""
        state = await self._state_of(flow_run_id)
        if state is None or state.is_final():
            return
        where = f" on {job.nodes}" if job.nodes else ""
        told = f"Slurm job {number} ended as {job.state}{where}, exit code {job.exit_code or 'unknown'}"
        output = f"; its output: {job.output}" if job.output else ""
        cancelled = job.state == "CANCELLED" or state.is_cancelling()
        await self._set_state(flow_run_id, (Cancelled if cancelled else Crashed)(message=told + output))

    async def _state_of(self, flow_run_id: UUID) -> State[Any] | None:
        """The flow run's state now; None where it was deleted."""
        try:
            return (await self.client.read_flow_run(flow_run_id)).state
        except ObjectNotFound:
            return None

    async def _set_state(self, flow_run_id: UUID, state: State[Any]) -> None:
        try:
            await self.client.set_flow_run_state(flow_run_id, state, force=True)
        except ObjectNotFound:
            self._logger.debug("Flow run %s was deleted", flow_run_id)


def restart() -> None:
    """In a job that Slurm started again: make its flow run pending, so that `prefect flow-run execute` takes it up.

    The attempt before called itself crashed (TERM) or still calls itself running (its node was lost). A cancelled run is not
    begun again, nor one that has ended.
    """
    flow_run_id = UUID(os.environ["PREFECT__FLOW_RUN_ID"])
    with get_client(sync_client=True) as client:
        if may_run_again(client.read_flow_run(flow_run_id).state):
            client.set_flow_run_state(flow_run_id, _requeued(), force=True)


def may_run_again(state: State | None) -> bool:
    """Whether a job that is started again should run its flow run."""
    return state is None or state.is_running() or state.is_crashed()


def _requeued() -> State:
    return Pending(name="Requeued", message="Slurm starts the job again; finished stages are in the store")
