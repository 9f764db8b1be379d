"""Evaluation in processes of its own, one at a time on each GPU, which end when this process ends.

One per unit (full scale), or a few that share the units and load the model once each. MMLU's subjects share a process
and so do the lengths of perplexity: loading the model would take longer than a subject, and one pass over a document
serves all lengths, or all measures of the planted judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.rows import Journal
from tokenweight.evaluation.units import Unit
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Evaluation, Execution

if TYPE_CHECKING:
    from tokenweight.evaluation.run import Job

USER_ERROR_EXIT_CODE = 2
_TOGETHER = ("mmlu", "perplexity", "planted")
_ONE_PASS = ("perplexity", "planted")  # never split: their units come from the same pass over the texts
_LOOK_SECONDS = 0.5


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
    devices: SimpleQueue[str | None] = SimpleQueue()
    names = visible_devices(execution)
    for name in names:
        devices.put(name)
    running: set[subprocess.Popen[bytes]] = set()
    order = {
        "checkpoint_dir": str(checkpoint_dir),
        "evaluation": evaluation.model_dump(mode="json"),
        "context_tokens": context_tokens,
        "execution": execution.model_copy(update={"isolate_evaluation": False, "evaluation_processes": 1}).model_dump(
            mode="json"
        ),
        "threads": max(1, (os.cpu_count() or 1) // len(names)) if len(names) > 1 else None,
        "parent_pid": os.getpid(),
    }
    groups = _groups(jobs) if execution.isolate_evaluation else _shares(jobs, len(names))
    pool = ThreadPoolExecutor(len(names))
    try:
        futures = {pool.submit(_run_worker, group, order, devices, running): group for group in groups}
        unfinished, left = set(futures), list(jobs)
        progress(0, len(jobs), "units")
        while unfinished:
            ended, unfinished = wait(unfinished, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            whole = [job for job in left if _is_finished(job)]
            left = [job for job in left if job not in whole]
            for number, job in enumerate(whole, start=1):
                progress(len(jobs) - len(left) - len(whole) + number, len(jobs), "units")
                yield job.unit
            for future in ended:
                future.result()
                lost = [job.unit.id for job in futures[future] if job in left]
                if lost:
                    raise StageError(f"{lost[0]}: its process ended well but left no rows")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            process.terminate()
        pool.shutdown(wait=True)


def visible_devices(execution: Execution) -> list[str | None]:
    """Values of CUDA_VISIBLE_DEVICES for processes that run side by side; None: the device as it is.

    Isolated units run on all GPUs; else there are `evaluation_processes`, on CUDA no more than GPUs.
    """
    import torch

    if execution.device == "cpu" or not torch.cuda.is_available():
        return [None] * execution.evaluation_processes
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [*given.split(",")] if given else [str(i) for i in range(torch.cuda.device_count())]
    return [*names] if execution.isolate_evaluation else [*names[: execution.evaluation_processes]]


def _is_finished(job: Job) -> bool:
    """Whether the process that works on a unit will not touch its directory again."""
    from tokenweight.evaluation.run import is_complete

    return is_complete(job.out_dir) and not Journal.is_open(job.out_dir)


def _shares(jobs: Sequence[Job], count: int) -> list[list[Job]]:
    """The jobs dealt out to `count` processes, the longest first, what comes from one pass together."""
    atoms: dict[str, list[Job]] = {}
    for job in jobs:
        key = job.unit.benchmark if job.unit.benchmark in _ONE_PASS else job.unit.id
        atoms.setdefault(key, []).append(job)
    longest_first = sorted(atoms.values(), key=lambda atom: -sum(job.unit.length_tokens or 0 for job in atom))
    shares: list[list[Job]] = [[] for _ in range(count)]
    for number, atom in enumerate(longest_first):
        shares[number % count] += atom
    return [share for share in shares if share]


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
            if order["threads"]:  # processes side by side share the cores
                environment.setdefault("OMP_NUM_THREADS", str(order["threads"]))
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
