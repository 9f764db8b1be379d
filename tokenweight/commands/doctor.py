"""The command `tokenweight doctor`: what is here and what is missing on this machine, by name, with the way out."""

import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenweight.assets import smoke_base_dir
from tokenweight.commands.command import command, print_json, print_table
from tokenweight.embedded import answers, nobody_answers
from tokenweight.errors import UserError
from tokenweight.files import check_writable
from tokenweight.recipes.options import STORE

Status = Literal["ok", "absent", "missing"]
_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class Finding(NamedTuple):
    """One thing that was looked at; `missing` keeps scale smoke from running, `absent` only larger scales."""

    name: str
    status: Status
    detail: str


@command
def doctor(*, store: Path = STORE, as_json: bool = False) -> None:
    findings = list(examine(store.expanduser().resolve()))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        print_table(Finding._fields, findings)


def examine(store_root: Path) -> Iterator[Finding]:
    """Look at Python, packages, GPUs, disk, shipped assets, data, credentials, what killed runs left, and the server."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield _found("python", sys.version_info >= (3, 11), version, f"{version}; 3.11 or later is needed", "missing")
    for name, (purpose, otherwise) in _TABLE["packages"].items():
        yield _package(name, purpose, otherwise)
    yield _gpus()
    yield from _disk(store_root)
    yield from _data()
    yield from _leftovers(store_root)
    if find_spec("prefect") is not None:
        from prefect.settings import get_current_settings

        from tokenweight.flows.server import chosen_server

        url, source = chosen_server(get_current_settings().api.url)
        where = f"{url.removesuffix('/api')} ({source})"
        yield _found("Prefect server", answers(url), where, nobody_answers(url, source))


def _found(name: str, there: bool, detail: str, otherwise: str, status: Status = "absent") -> Finding:
    return Finding(name, "ok", detail) if there else Finding(name, status, otherwise)


def _package(name: str, purpose: str, otherwise: Status) -> Finding:
    module = name.replace("-", "_")
    try:
        import_module(module)
        return Finding(name, "ok", f"{metadata.version(name)} ({purpose})")
    except Exception as error:  # whatever keeps it from being used
        if not isinstance(error, ModuleNotFoundError) or error.name != module:
            return Finding(name, otherwise, f"cannot be imported: {' '.join(str(error).split())[:200]}")
    way = "pip install -e '.[deepspeed]' in the project's directory" if name == "deepspeed" else "make install"
    return Finding(name, otherwise, f"for {purpose}; {way}")


def _gpus() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("gpus", "absent", "torch is not installed")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    none = "none seen by torch; scale smoke runs on the CPU, mini and paper need GPUs"
    return _found("gpus", bool(names), ", ".join(names), none)


def _disk(store_root: Path) -> Iterator[Finding]:
    place = next(parent for parent in (store_root, *store_root.parents) if parent.exists())
    free = shutil.disk_usage(place).free / 2**30
    for scale, (least, otherwise) in _TABLE["disk_gib"].items():
        detail = f"{free:.0f} GiB free at {place}; about {least} GiB needed"
        yield _found(f"disk for {scale}", free >= least, detail, detail, otherwise)
    try:
        check_writable("--store", store_root)
    except UserError as error:
        yield Finding("store", "missing", str(error))


def _data() -> Iterator[Finding]:
    from huggingface_hub import get_token, try_to_load_from_cache

    from tokenweight.evaluation.ruler.downloads import NAMES, source_file
    from tokenweight.recipes.recipe import scaled

    base = smoke_base_dir() / "model.safetensors"
    yield _found("smoke base model", base.is_file(), "shipped", "reinstall the package", "missing")
    for name in NAMES:
        file = source_file(name)
        yield _found(f"RULER's {name}", file.is_file(), str(file), f"for scale paper; tokenweight data fetch {name}")
    gated = "for the gated Llama-3 8B (scale paper); hf auth login"
    yield _found("hub token", bool(get_token()), "present", gated)
    settings = scaled("table-3/uniform", "paper")
    repo_id, revision = settings["base.repo_id"].value, settings["base.revision"].value
    cached = isinstance(try_to_load_from_cache(repo_id, "config.json", revision=revision), str)
    way = f"for scale paper; hf download {repo_id} --revision {revision}"
    yield _found(repo_id, cached, "in the local cache", way)


def _leftovers(store_root: Path) -> Iterator[Finding]:
    from tokenweight.pipeline.inventory import inventory

    # A lock of torch's extensions that a killed run left makes the next DeepSpeed run wait without a word.
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    for lock in sorted(root.glob("**/lock")):
        detail = "is being compiled, or was left by a run that was killed: then delete it, or DeepSpeed waits for it"
        yield Finding("torch extension", "absent", f"{lock} {detail}")
    if partial := [entry for entry in inventory(store_root) if entry.kind == "partial" and entry.bytes]:
        names = ", ".join(entry.address for entry in partial[:3])
        yield Finding("unfinished artifacts", "ok", f"{len(partial)} ({names}); the next run resumes them")
