"""GPUs that a stage holds while it runs, as slots of the server's limit `gpu`. It counts; it does not choose devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound

from tokenweight.recipes.schema import Execution
from tokenweight.tasks.publish import has_server

LIMIT = "gpu"
LEASE_SECONDS = 60  # Prefect's least; after so long without a sign, the slots of a run that was killed are free again
_ON_GPUS: tuple[str, ...] = ("pretrain", "score", "train", "evaluate")


@contextmanager
def gpus_held(stage: str, execution: Execution, note: Callable[[str], None]) -> Iterator[None]:
    """Wait for as many slots as the stage uses GPUs, or for all there are; at once without GPUs, server or limit.

    `note` is told how many, before the wait.
    """
    wanted = _gpus_of(stage, execution)
    limit = _limit() if wanted and has_server() else None
    if not limit:  # to Prefect a limit that is not there is no limit, with a warning at each stage
        yield
        return
    occupied = min(wanted, limit)
    note(f"{stage} takes {occupied} of {limit} GPUs")
    # A server that is away for a while ends no stage: what it gave away meanwhile is better shared than lost.
    with concurrency(LIMIT, occupy=occupied, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False):
        yield


def _gpus_of(stage: str, execution: Execution) -> int:
    if stage not in _ON_GPUS or execution.device == "cpu":
        return 0
    import torch

    seen = torch.cuda.device_count()
    if not seen:
        return 0
    if stage == "evaluate":
        processes = execution.evaluation_processes
        return seen if processes == "gpus" else processes * execution.tensor_parallel
    return execution.processes_per_node


def _limit() -> int | None:
    with get_client(sync_client=True) as client:
        try:
            found = client.read_global_concurrency_limit_by_name(LIMIT)
        except ObjectNotFound:
            return None
    return found.limit if found.active else None
