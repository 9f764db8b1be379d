"""What lies in a store: artifacts, complete or not, and what interrupted runs and clean-ups left; and what of it can go."""

import json
import re
import shutil
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from tokenweight.files import replace_file
from tokenweight.pipeline.locks import held_in, is_held, lease
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import WEIGHTS_REMOVED, Kind, State, read_record, renamed_aside, state_of

_NAME = re.compile(r"\.?(?P<name>[^.].*-[0-9a-f]{8})(?:\.(?P<left>partial|removed|damaged)(?:-\w+)?)?")
_LEFT = {
    "partial": State("partial", "left by an interrupted run; the next run resumes from it"),
    "removed": State("half removed", "left by an interrupted clean-up"),
    "damaged": State("set aside", "was found damaged, and set aside"),
}
_WEIGHTS = (".safetensors", ".bin", ".pt")
_MODEL = "model"  # the folder of a checkpoint in its artifact


@dataclass(frozen=True)
class Entry:
    """One directory of a stage. `name` is the artifact's, also where the directory is what is left of it."""

    path: Path
    name: str  # ends in the first 8 digits of the fingerprint
    kind: Kind
    reason: str
    bytes: int
    changed: datetime  # when made; without a record, when last written to
    record: dict[str, Any]  # empty where there is none; then the properties below are too

    @property
    def stage(self) -> str:
        return self.path.parent.name

    @property
    def address(self) -> str:
        return f"{self.stage}/{self.name}"

    @property
    def fingerprint(self) -> str:
        return str(self.record.get("fingerprint", ""))

    @property
    def outputs(self) -> dict[str, Any]:
        return dict(self.record.get("outputs", {}))

    @property
    def is_usable(self) -> bool:
        """Whether runs read it, if only its record."""
        return self.kind in ("complete", "weights removed")

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(map(str, self.record.get("inputs", {}).values()))


def inventory(root: Path, *, digests: bool = False) -> list[Entry]:
    """Everything in the store, by stage and name; contents of files are read only with `digests`."""
    entries, held = [], held_in(root)
    for path in sorted(root.glob("*/*")):
        match = _NAME.fullmatch(path.name)
        if not match or not path.is_dir():
            continue
        name, left, record = match["name"], match["left"], read_record(path)
        kind, reason = _LEFT[left] if left else _judged(path, record, digests)
        if kind == "partial" and (path.parent.name, name[-8:]) in held:
            kind, reason = "being made", "a run is making it"
        size, newest = _walked(path)
        try:
            changed = datetime.fromisoformat((record or {})["started"])
        except (KeyError, TypeError, ValueError):
            changed = datetime.fromtimestamp(newest, UTC)
        if newest:  # else it went meanwhile
            entries.append(Entry(path, name, kind, reason, size, changed, record or {}))
    return entries


def used_by(entries: Sequence[Entry]) -> Counter[str]:
    """How many artifacts were made from each, by its fingerprint."""
    return Counter(fingerprint for entry in entries if entry.is_usable for fingerprint in entry.inputs)


def _walked(path: Path) -> tuple[int, float]:
    """Bytes of all files below a directory, and when one was last written to; what goes meanwhile counts as none."""
    size, newest = 0, 0.0
    for file in (path, *path.rglob("*")):
        with suppress(OSError):
            found = file.lstat()
            size += 0 if stat.S_ISDIR(found.st_mode) else found.st_size
            newest = max(newest, found.st_mtime)
    return size, newest


def _judged(path: Path, record: dict[str, Any] | None, digests: bool) -> State:
    """Whether the record fits itself and its address, and the files fit the record."""
    if record is not None:
        name = path.name.rpartition("-")[0]
        try:
            made = Identity(record["stage"], record["stage_version"], name, record["config"], record["inputs"])
            fingerprint, address = made.fingerprint, made.address
        except (KeyError, TypeError, ValueError) as error:
            return State("damaged", f"its record cannot be read ({error})")
        if record.get("fingerprint") != fingerprint:
            return State("damaged", "its record was changed: configuration and inputs give another fingerprint")
        if path.parts[-2:] != tuple(address.split("/")):
            return State("damaged", "its record belongs to another address")
    return state_of(path, record, digests=digests)


@dataclass(frozen=True)
class Removal:
    """One thing to remove and why: the complete directory, or only its weights, of these `names`."""

    entry: Entry
    why: str
    bytes: int
    names: tuple[str, ...] = ()


def garbage(entries: Sequence[Entry], *, unfinished: bool = False) -> Iterator[Removal]:
    """What no record speaks of and no run could use: leftovers of clean-ups, damaged artifacts that were set aside.

    What an interrupted run left is kept, for the next one resumes from it; with `unfinished` it is among them.
    """
    finished = {entry.address for entry in entries if entry.kind == "complete"}  # removed weights may be in the making
    for entry in entries:
        if entry.kind == "partial" and entry.address in finished:
            yield Removal(entry, "its artifact is finished", entry.bytes)
        elif entry.kind == "partial" and not entry.bytes:
            yield Removal(entry, "an interrupted run left it empty", 0)
        elif entry.kind in ("set aside", "half removed") or (entry.kind == "partial" and unfinished):
            yield Removal(entry, entry.reason.partition(";")[0], entry.bytes)


def unneeded(entries: Sequence[Entry], kept: Collection[str]) -> list[Removal]:
    """Artifacts, finished or not, that are neither among the `kept` fingerprints nor what those were made from."""
    by_fingerprint = {entry.fingerprint: entry for entry in entries if entry.is_usable}
    needed, waiting = set[str](), list(kept)
    while waiting:
        fingerprint = waiting.pop()
        if fingerprint not in needed:
            needed.add(fingerprint)
            waiting.extend(by_fingerprint[fingerprint].inputs if fingerprint in by_fingerprint else ())
    short = {fingerprint[:8] for fingerprint in needed}
    gone = [entry for fingerprint, entry in by_fingerprint.items() if fingerprint not in needed]
    gone += [entry for entry in entries if entry.kind == "partial" and entry.name[-8:] not in short]
    return [Removal(entry, "no kept target needs it", entry.bytes) for entry in gone]


def weights(entries: Sequence[Entry], needed: Collection[str]) -> Iterator[Removal]:
    """Weights of checkpoints from which something was made, but for the `needed` fingerprints; their records stay."""
    users = used_by(entries)
    for entry in entries:
        made, names = users[entry.fingerprint], tuple(filter(_is_weight, entry.outputs))
        if names and made and entry.kind == "complete" and entry.fingerprint not in needed:
            freed = sum(entry.outputs[name]["bytes"] for name in names)
            yield Removal(entry, f"its weights; the records of {made} made from it stay", freed, names)


def remove(root: Path, removal: Removal) -> bool:
    """Remove it; False where a run holds it now or it is gone already.

    Killed in the middle it leaves no artifact half there: a directory is renamed before its files go, and weights are
    listed as removed before they are.
    """
    entry = removal.entry
    if is_held(root, entry.stage, entry.name[-8:]):
        return False
    with lease(root, entry.stage, entry.name[-8:]) as ours:
        if ours is None or not entry.path.is_dir():
            return False
        if not removal.names:
            shutil.rmtree(renamed_aside(entry.path, f".{entry.name}.removed"))
            return True
        replace_file(entry.path / WEIGHTS_REMOVED, json.dumps(removal.names))
        for name in removal.names:
            (entry.path / name).unlink(missing_ok=True)
    return True


def _is_weight(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == _MODEL and path.suffix in _WEIGHTS
