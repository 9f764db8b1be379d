"""Evaluation in processes of its own (full scale): one per unit and GPU, which end when this process ends.

MMLU's subjects share a process and so do the lengths of perplexity: loading the model would take longer than a
subject, and one pass over a document serves all lengths, or all measures of the planted judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.units import Unit
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Evaluation, Execution

if TYPE_CHECKING:
    from tokenweight.evaluation.run import Job

USER_ERROR_EXIT_CODE = 2
_TOGETHER = ("mmlu", "perplexity", "planted")


def evaluate_isolated(
    checkpoint_dir: Path,
    jobs: Sequence[Job],
    evaluation: Evaluation,
    context_tokens: int,
    execution: Execution,
    progress: Progress,
) -> Iterator[Unit]:
    """As :func:`tokenweight.evaluation.run.evaluate`, in processes; progress counts units.

    Raises:
        UserError, StageError: what the first failing process said; the others are ended.
    """
    from tokenweight.evaluation.run import is_complete

    devices: SimpleQueue[str | None] = SimpleQueue()
    names = visible_devices(execution)
    for name in names:
        devices.put(name)
    running: set[subprocess.Popen[bytes]] = set()
    order = {
        "checkpoint_dir": str(checkpoint_dir),
        "evaluation": evaluation.model_dump(mode="json"),
        "context_tokens": context_tokens,
        "execution": execution.model_copy(update={"isolate_evaluation": False}).model_dump(mode="json"),
        "parent_pid": os.getpid(),
    }
    done = 0
    pool = ThreadPoolExecutor(len(names))
    try:
        futures = {pool.submit(_run_worker, group, order, devices, running): group for group in _groups(jobs)}
        for future in as_completed(futures):
            future.result()
            for job in futures[future]:
                if not is_complete(job.out_dir):
                    raise StageError(f"{job.unit.id}: its process ended well but left no rows")
                done += 1
                progress(done, len(jobs), "units")
                yield job.unit
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            process.terminate()
        pool.shutdown(wait=True)


def visible_devices(execution: Execution) -> list[str | None]:
    """Values of CUDA_VISIBLE_DEVICES for processes that run side by side; [None]: one process, device as it is."""
    import torch

    if execution.device == "cpu" or not torch.cuda.is_available():
        return [None]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [*given.split(",")] if given else [str(i) for i in range(torch.cuda.device_count())]


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        key = job.unit.benchmark if job.unit.benchmark in _TOGETHER else job.unit.id
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _run_worker(
    group: list[Job],
    order: dict[str, Any],
    devices: SimpleQueue[str | None],
    running: set[subprocess.Popen[bytes]],
) -> None:
    device = devices.get()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            order_file, log_file = Path(scratch, "job.json"), Path(scratch, "stderr.txt")
            jobs = [
                {
                    "unit": asdict(j.unit),
                    "prepared_dirs": [str(directory) for directory in j.prepared_dirs],
                    "out_dir": str(j.out_dir),
                }
                for j in group
            ]
            order_file.write_text(json.dumps(order | {"jobs": jobs}))
            environment = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device is not None else {})
            with log_file.open("wb") as log:
                command = [sys.executable, "-m", "tokenweight.evaluation.worker", str(order_file)]
                process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
                running.add(process)
                code = process.wait()
                running.discard(process)
            if code:
                raise _error(group, code, log_file.read_text(errors="replace"))
    finally:
        devices.put(device)


def _error(group: list[Job], code: int, log: str) -> Exception:
    lines = [line for line in log.splitlines() if line.strip()] or ["(it said nothing)"]
    if code == USER_ERROR_EXIT_CODE:
        return UserError(lines[-1])
    return StageError(f"{group[0].unit.id}: its process ended with {code}:\n" + "\n".join(lines[-20:]))
