"""What lies in a store: artifacts, complete or not, and what interrupted runs and clean-ups left; and what of it can go."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tokenweight.pipeline.locks import held_in, is_held, lease
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import (
    WEIGHTS_REMOVED,
    files_fault,
    read_record,
    removed_weights,
    renamed_aside,
    write_json,
)

Kind = Literal["complete", "weights removed", "damaged", "set aside", "partial", "being made", "half removed"]

_NAME = re.compile(r"\.?(?P<name>[^.].*-(?P<short>[0-9a-f]{8}))(?:\.(?P<left>partial|removed|damaged)(?:-\w+)?)?")
_LEFT: dict[str, tuple[Kind, str]] = {
    "partial": ("partial", "left by an interrupted run; the next run resumes from it"),
    "removed": ("half removed", "left by an interrupted clean-up"),
    "damaged": ("set aside", "was found damaged, and set aside"),
}
_WEIGHTS = (".safetensors", ".bin", ".pt")
_MODEL = "model"  # the folder of a checkpoint in its artifact
_RESUME = ("checkpoints", "launch")  # of training, gone when it ends well


@dataclass(frozen=True)
class Entry:
    """One directory of a stage. `name` is the artifact's, also where the directory is what is left of it."""

    path: Path
    name: str
    short: str  # first 8 digits of the fingerprint
    kind: Kind
    reason: str
    bytes: int
    changed: datetime  # when made; without a record, when last written to
    record: dict[str, Any] | None

    @property
    def stage(self) -> str:
        """The artifact's."""
        return self.path.parent.name

    @property
    def address(self) -> str:
        """Address of the artifact, relative to the store."""
        return f"{self.stage}/{self.name}"

    @property
    def fingerprint(self) -> str | None:
        """All digits of the fingerprint, where there is a record."""
        return self.record.get("fingerprint") if self.record else None

    @property
    def outputs(self) -> dict[str, Any]:
        """By name: bytes and SHA-256 of the files that its record has."""
        return self.record["outputs"] if self.record else {}

    @property
    def is_usable(self) -> bool:
        """Whether runs read it, if only its record."""
        return self.kind in ("complete", "weights removed")

    @property
    def inputs(self) -> frozenset[str]:
        """Fingerprints of what it was made from."""
        return frozenset(map(str, self.record.get("inputs", {}).values())) if self.record else frozenset()


def inventory(root: Path, *, digests: bool = False) -> list[Entry]:
    """Everything in the store, by stage and name; contents of files are read only with `digests`."""
    entries, held = [], held_in(root)
    for path in sorted(root.glob("*/*")):
        match = _NAME.fullmatch(path.name)
        if not match or not path.is_dir():
            continue
        record, is_held_now = read_record(path), (path.parent.name, match["short"]) in held
        kind, reason = _LEFT[match["left"]] if match["left"] else _state(path, record, digests)
        if kind == "partial" and is_held_now:
            kind, reason = "being made", "a run is making it"
        try:
            changed = _changed(path, record)
        except OSError:  # went meanwhile
            continue
        entries.append(Entry(path, match["name"], match["short"], kind, reason, size(path), changed, record))
    return entries


def used_by(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """For each fingerprint the artifacts that were made from it."""
    users: dict[str, list[Entry]] = {}
    for entry in entries:
        for fingerprint in entry.inputs if entry.is_usable else ():
            users.setdefault(fingerprint, []).append(entry)
    return users


def size(path: Path) -> int:
    """Bytes of all files below a directory; a file that goes meanwhile counts as none."""
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_size if not file.is_dir() else 0
        except OSError:
            continue
    return total


def _state(path: Path, record: dict[str, Any] | None, digests: bool) -> tuple[Kind, str]:
    """Whether the record fits itself and its address, and the files fit the record."""
    if fault := _record_fault(path, record) or files_fault(path, record, digests=digests):
        return "damaged", fault
    if removed_weights(path):
        return "weights removed", "its record stays; made again if something needs the weights"
    return "complete", ""


def _record_fault(path: Path, record: dict[str, Any] | None) -> str | None:
    if record is None:
        return None
    name = path.name.rpartition("-")[0]
    try:
        made = Identity(record["stage"], record["stage_version"], name, record["config"], record["inputs"])
        fingerprint, address = made.fingerprint, made.address
    except (KeyError, TypeError, ValueError) as error:
        return f"its record cannot be read ({error})"
    if record.get("fingerprint") != fingerprint:
        return "its record was changed: configuration and inputs give another fingerprint"
    return None if path.parts[-2:] == tuple(address.split("/")) else "its record belongs to another address"


def _changed(path: Path, record: dict[str, Any] | None) -> datetime:
    try:
        return datetime.fromisoformat((record or {})["started"])
    except (KeyError, TypeError, ValueError):
        newest = max(file.lstat().st_mtime for file in [path, *path.rglob("*")])
        return datetime.fromtimestamp(newest, UTC)


@dataclass(frozen=True)
class Removal:
    """One thing to remove and why: the complete directory, or only `names` in it."""

    entry: Entry
    why: str
    bytes: int
    names: tuple[str, ...] = ()


def garbage(entries: Sequence[Entry], *, unfinished: bool = False) -> list[Removal]:
    """What no record speaks of and no run could use: leftovers of clean-ups, damaged artifacts that were set aside.

    What an interrupted run left is kept, for the next one resumes from it; with `unfinished` it is among them.
    """
    finished = {entry.address for entry in entries if entry.kind == "complete"}  # removed weights may be in the making
    found = []
    for entry in entries:
        if entry.kind == "partial" and entry.address in finished:
            found.append(Removal(entry, "its artifact is finished", entry.bytes))
        elif entry.kind == "partial" and not entry.bytes:
            found.append(Removal(entry, "an interrupted run left it empty", 0))
        elif entry.kind in ("set aside", "half removed") or (entry.kind == "partial" and unfinished):
            found.append(Removal(entry, entry.reason.partition(";")[0], entry.bytes))
        elif entry.kind == "complete" and (folders := _resume_checkpoints(entry)):
            freed = sum(size(entry.path / name) for name in folders)
            found.append(Removal(entry, "resume checkpoints of a finished stage", freed, folders))
    return found


def unneeded(entries: Sequence[Entry], kept: Collection[str]) -> list[Removal]:
    """Artifacts, finished or not, that are neither among the `kept` fingerprints nor what those were made from."""
    by_fingerprint = {entry.fingerprint: entry for entry in entries if entry.is_usable}
    needed, waiting = set[str](), list(kept)
    while waiting:
        fingerprint = waiting.pop()
        if fingerprint not in needed:
            needed.add(fingerprint)
            entry = by_fingerprint.get(fingerprint)
            waiting.extend(entry.inputs if entry else ())
    short = {fingerprint[:8] for fingerprint in needed}
    gone = [entry for fingerprint, entry in by_fingerprint.items() if fingerprint not in needed]
    gone += [entry for entry in entries if entry.kind == "partial" and entry.short not in short]
    return [Removal(entry, "no kept target needs it", entry.bytes) for entry in gone]


def weights(entries: Sequence[Entry], needed: Collection[str]) -> list[Removal]:
    """Weights of checkpoints from which something was made, but for the `needed` fingerprints; their records stay."""
    users, found = used_by(entries), []
    for entry in entries:
        made = len(users.get(entry.fingerprint or "", ()))
        names = tuple(filter(_is_weight, entry.outputs))
        if names and made and entry.kind == "complete" and entry.fingerprint not in needed:
            freed = sum(entry.outputs[name]["bytes"] for name in names)
            found.append(Removal(entry, f"its weights; the records of {made} made from it stay", freed, names))
    return found


def remove(root: Path, removal: Removal) -> bool:
    """Remove it; False where a run holds it now or it is gone already.

    Killed in the middle it leaves no artifact half there: a directory is renamed before its files go, and weights are
    listed as removed before they are.
    """
    entry = removal.entry
    if is_held(root, entry.stage, entry.short):
        return False
    with lease(root, entry.stage, entry.short) as ours:
        if ours is None or not entry.path.is_dir():
            return False
        if not removal.names:
            shutil.rmtree(renamed_aside(entry.path, f".{entry.name}.removed"))
        if any(map(_is_weight, removal.names)):
            write_json(entry.path / WEIGHTS_REMOVED, list(removal.names))
        for name in removal.names:
            target = entry.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
    return True


def _is_weight(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == _MODEL and path.suffix in _WEIGHTS


def _resume_checkpoints(entry: Entry) -> tuple[str, ...]:
    recorded = {PurePosixPath(name).parts[0] for name in entry.outputs}
    return tuple(folder for folder in _RESUME if (entry.path / folder).is_dir() and folder not in recorded)
