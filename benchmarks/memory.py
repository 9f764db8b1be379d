"""Peak memory of a piece of work, measured in a process of its own (Linux)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

MIB = 2**20


def in_fresh_process(script: str, *arguments: str) -> dict[str, float]:
    """Run a script that prints what :func:`measured` gave as its last line."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, script, *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return result


def measured(work: Callable[[], None], folder: Path) -> dict[str, float]:
    """Peaks in MiB and seconds of `work`; what is on disk below `folder` after it.

    The peak of resident memory counts pages of mapped files, which the kernel takes back whenever it likes; anonymous
    memory is what the process itself holds, sampled every 10 ms.
    """
    peak, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            peak[0] = max(peak[0], _anonymous_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        work()
    finally:
        ended.set()
        watcher.join()
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "peak_anonymous_mib": round(peak[0], 1),
        "disk_mib": round(disk / MIB, 3),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _anonymous_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def machine() -> dict[str, str | int | None]:
    """Processor, cores and versions, for a result's file."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
    }
