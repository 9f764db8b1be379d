"""Evaluation in processes of their own, one on each GPU, that load the model once and end when this process ends.

Units wait in one queue, the longest first, and a process takes the next when it is done, so that all end at about the
same time. What comes from one pass over the texts stays together (all lengths of perplexity, all measures of the planted
judge), and so do MMLU's subjects and BBH's tasks, whose samples are few and fill batches together.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.units import benchmark_of
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Evaluation, Execution

Group = list[UnitRun]


@dataclass
class _Shared:
    """What the threads that serve the processes have in common."""

    order: dict[str, Any]
    scratch: Path
    waiting: SimpleQueue[Group] = field(default_factory=SimpleQueue)
    told: SimpleQueue[Unit | Exception | None] = field(default_factory=SimpleQueue)  # None: look at `parts`
    parts: dict[int, float] = field(default_factory=dict)  # of each process: units at work, by how far they are
    running: set[subprocess.Popen[str]] = field(default_factory=set)
    stopping: bool = False  # no further process is of use


def evaluate_in_workers(
    checkpoint_dir: Path,
    jobs: Sequence[UnitRun],
    evaluation: Evaluation,
    context_tokens: int,
    execution: Execution,
    progress: Progress,
) -> Iterator[Unit]:
    """As :func:`tokenweight.evaluation.run.evaluate_checkpoint`, in processes; progress counts units, and parts of them.

    Raises:
        UserError, StageError: what the first failing process said; the others are ended.
    """
    names = visible_devices(execution)
    groups = grouped(jobs, context_tokens)
    with tempfile.TemporaryDirectory() as scratch:
        shared = _Shared(
            order={
                "checkpoint_dir": str(checkpoint_dir),
                "evaluation": evaluation.model_dump(mode="json"),
                "context_tokens": context_tokens,
                "execution": execution.model_copy(update={"evaluation_processes": 1}).model_dump(mode="json"),
                "threads": max(1, (os.cpu_count() or 1) // len(names)) if len(names) > 1 else None,
                "parent_pid": os.getpid(),
            },
            scratch=Path(scratch),
        )
        for group in groups:
            shared.waiting.put(group)
        threads = [
            Thread(target=_serve, args=(number, name, shared), daemon=True)
            for number, name in enumerate(names[: len(groups)])
        ]
        try:
            for thread in threads:
                thread.start()
            yield from _results(len(jobs), shared, progress)
        finally:
            shared.stopping = True
            while not shared.waiting.empty():
                shared.waiting.get()
            for process in list(shared.running):
                process.terminate()
            for thread in threads:
                thread.join()


def _results(total: int, shared: _Shared, progress: Progress) -> Iterator[Unit]:
    done = 0
    progress(done, total, "units")
    while done < total:
        told = shared.told.get()
        if isinstance(told, Exception):
            raise told
        if told is not None:
            done += 1
        progress(min(total, done + sum(shared.parts.values())), total, "units")
        if told is not None:
            yield told


def visible_devices(execution: Execution) -> list[str | None]:
    """Values of CUDA_VISIBLE_DEVICES for processes that run side by side; None: the device as it is."""
    import torch

    wanted = execution.evaluation_processes
    if execution.device == "cpu" or not torch.cuda.is_available():
        return [None] * (1 if wanted == "gpus" else wanted)
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]
    each = execution.tensor_parallel
    names: list[str | None] = [",".join(gpus[i : i + each]) for i in range(0, len(gpus) - each + 1, each)]
    if not names:
        raise UserError(f"tensor_parallel {each}: torch sees {len(gpus)} GPUs; give no more than that")
    return names if wanted == "gpus" else names[:wanted]


def grouped(jobs: Sequence[UnitRun], context_tokens: int) -> list[Group]:
    """The jobs as they are taken: what belongs together first, then unit by unit, the longest prompts first."""
    groups: dict[str, Group] = {}
    for job in jobs:
        key = job.unit.benchmark if benchmark_of(job.unit).together else job.unit.id
        groups.setdefault(key, []).append(job)

    def order(group: Group) -> tuple[bool, int]:
        unit = group[0].unit
        longest = context_tokens if benchmark_of(unit).prompted else 0
        return not benchmark_of(unit).together, -(unit.length_tokens or longest)

    return sorted(groups.values(), key=order)


def _serve(number: int, device: str | None, shared: _Shared) -> None:
    """One process: start it, hand it group after group, tell what it says."""
    log_file = shared.scratch / f"{number}.log"
    process: subprocess.Popen[str] | None = None
    try:
        while True:
            try:
                group = shared.waiting.get_nowait()
            except Empty:
                break
            if process is None:
                process = _start(number, device, log_file, shared)
            _run(group, number, process, log_file, shared)
    except Exception as error:
        shared.told.put(error)
    finally:
        if process is not None:
            _end(process)
            shared.running.discard(process)


def _start(number: int, device: str | None, log_file: Path, shared: _Shared) -> subprocess.Popen[str]:
    order_file = shared.scratch / f"{number}.json"
    order_file.write_text(json.dumps(shared.order))
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device is not None else {})
    if shared.order["threads"]:  # processes side by side share the cores
        environment.setdefault("OMP_NUM_THREADS", str(shared.order["threads"]))
    command = [sys.executable, "-m", "tokenweight.evaluation.worker", str(order_file)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
    shared.running.add(process)
    if shared.stopping:  # the others were ended while this one was started
        process.terminate()
    return process


def _run(group: Group, number: int, process: subprocess.Popen[str], log_file: Path, shared: _Shared) -> None:
    jobs = [
        {
            "unit": asdict(job.unit),
            "prepared_dirs": [str(directory) for directory in job.prepared_dirs],
            "out_dir": str(job.out_dir),
        }
        for job in group
    ]
    left = {job.unit for job in group}
    try:
        print(json.dumps(jobs), file=_pipe(process.stdin), flush=True)
        for line in _pipe(process.stdout):
            message = json.loads(line)
            if "error" in message:
                raise (UserError if message["of_user"] else StageError)(message["error"])
            if "unit" in message:
                unit = Unit(**message["unit"])
                left.discard(unit)
                shared.told.put(unit)
            elif "done" in message:
                shared.parts[number] = len(left) * message["done"] / max(1, message["total"])
                shared.told.put(None)
            else:
                break
        else:
            raise _error(group, process.wait(), log_file.read_text(errors="replace"))
    except BrokenPipeError:
        raise _error(group, process.wait(), log_file.read_text(errors="replace")) from None
    finally:
        shared.parts.pop(number, None)
    if left:
        raise StageError(f"{min(left).id}: its process ended well but left no rows")


def _end(process: subprocess.Popen[str]) -> None:
    """Let the process end: it does where nothing more comes."""
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            _pipe(pipe).close()
    process.wait()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise TypeError("the process was started without pipes")
    return stream


def _error(group: Group, code: int, log: str) -> Exception:
    lines = [line for line in log.splitlines() if line.strip()] or ["(it said nothing)"]
    return StageError(f"{group[0].unit.id}: its process ended with {code}:\n" + "\n".join(lines[-20:]))
