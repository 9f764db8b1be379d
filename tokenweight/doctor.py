"""What is here and what is missing on this machine, by name, with the way out."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal

# (distribution, what needs it, required everywhere?)
_PACKAGES = (
    ("torch", "all models", True),
    ("transformers", "all models", True),
    ("datasets", "corpora and lm-eval", True),
    ("lm-eval", "evaluation", True),
    ("prefect", "reproduce and deployments", True),
    ("deepspeed", "training on several GPUs (scale paper)", False),
)
_LEAST_FREE_GIB = {"smoke": 1, "paper": 500}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `missing` keeps scale smoke from running, `absent` only larger scales."""

    name: str
    status: Literal["ok", "absent", "missing"]
    detail: str


def examine(store_root: Path) -> list[Finding]:
    """Look at Python, packages, GPUs, disk, shipped assets, hub cache and credentials."""
    return [
        _python(),
        *_packages(),
        _gpus(),
        *_disk(store_root),
        *_assets(),
        *_ruler_sources(),
        *_credentials(),
        *_compiling(),
        *_leftovers(store_root),
    ]


def print_findings(findings: list[Finding]) -> None:
    """Print the findings as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("what", "status", "detail"):
        table.add_column(heading, overflow="fold")
    colours = {"ok": "green", "absent": "yellow", "missing": "red"}
    for finding in findings:
        status = f"[{colours[finding.status]}]{finding.status}[/]"
        table.add_row(escape(finding.name), status, escape(finding.detail))
    Console().print(table)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Finding("python", "ok" if good else "missing", version if good else f"{version}; 3.11 or later is needed")


def _packages() -> list[Finding]:
    findings = []
    for name, purpose, required in _PACKAGES:
        try:
            import_module(name.replace("-", "_"))
            findings.append(Finding(name, "ok", f"{metadata.version(name)} ({purpose})"))
        except Exception as error:  # whatever keeps it from being used
            if not isinstance(error, ModuleNotFoundError) or error.name != name.replace("-", "_"):
                reason = " ".join(str(error).split())[:200]
                findings.append(Finding(name, "missing" if required else "absent", f"cannot be imported: {reason}"))
                continue
            way = "pip install -e '.[deepspeed]' in the project's directory" if name == "deepspeed" else "make install"
            findings.append(Finding(name, "missing" if required else "absent", f"for {purpose}; {way}"))
    return findings


def _gpus() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("gpus", "absent", "torch is not installed")
    if not torch.cuda.is_available():
        return Finding("gpus", "absent", "none seen by torch; scale smoke runs on the CPU, mini and paper need GPUs")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("gpus", "ok", ", ".join(names))


def _disk(store_root: Path) -> list[Finding]:
    place = store_root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    findings = []
    for scale, least in _LEAST_FREE_GIB.items():
        enough = free >= least
        status: Literal["ok", "absent", "missing"] = "ok" if enough else ("missing" if scale == "smoke" else "absent")
        findings.append(
            Finding(f"disk for {scale}", status, f"{free:.0f} GiB free at {place}; about {least} GiB needed")
        )
    if not os.access(place, os.W_OK):
        findings.append(Finding("store", "missing", f"{place} cannot be written; choose another --store"))
    return findings


def _compiling() -> list[Finding]:
    """Lock files of torch's extensions: one that a killed run left makes the next DeepSpeed run wait without a word."""
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    locks = sorted(root.glob("**/lock"))
    detail = "is compiled now, or was left by a run that was killed: then delete it, for DeepSpeed waits for it"
    return [Finding("torch extension", "absent", f"{lock} {detail}") for lock in locks]


def _assets() -> list[Finding]:
    from tokenweight.corpus.assets import smoke_base_dir

    whole = (smoke_base_dir() / "model.safetensors").is_file()
    return [Finding("smoke base model", "ok" if whole else "missing", "shipped" if whole else "reinstall the package")]


def _ruler_sources() -> list[Finding]:
    from tokenweight.evaluation.ruler.downloads import NAMES, source_file

    return [
        Finding(f"RULER's {name}", "ok", str(source_file(name)))
        if source_file(name).is_file()
        else Finding(f"RULER's {name}", "absent", f"for scale paper; tokenweight data fetch {name}")
        for name in NAMES
    ]


def _credentials() -> list[Finding]:
    from huggingface_hub import get_token, try_to_load_from_cache

    from tokenweight.recipes.scales import scaled

    token = Finding("hub token", "ok", "present") if get_token() else Finding(
        "hub token", "absent", "for the gated Llama-3 8B (scale paper); hf auth login"
    )  # fmt: skip
    settings = scaled("table-3/uniform", "paper")
    repo_id, revision = settings["base.repo_id"].value, settings["base.revision"].value
    cached = isinstance(try_to_load_from_cache(repo_id, "config.json", revision=revision), str)
    model = Finding(repo_id, "ok", "in the local cache") if cached else Finding(
        repo_id, "absent", f"for scale paper; hf download {repo_id} --revision {revision}"
    )  # fmt: skip
    return [token, model]


def _leftovers(store_root: Path) -> list[Finding]:
    from tokenweight.pipeline.inventory import inventory

    partial = [entry for entry in inventory(store_root) if entry.kind == "partial"]
    if not partial:
        return []
    names = ", ".join(entry.address for entry in partial[:3])
    return [Finding("unfinished artifacts", "ok", f"{len(partial)} ({names}); the next run resumes them")]
