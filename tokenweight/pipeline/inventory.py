"""What lies in a store: artifacts, whole or not, and what killed runs and clean-ups left. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tokenweight.pipeline.faults import files_fault, record_fault, removed_weights
from tokenweight.pipeline.leases import holders
from tokenweight.pipeline.store import read_record

Kind = Literal["whole", "weights removed", "damaged", "set aside", "partial", "being made", "half removed"]

_NAMES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"\.(?P<name>.+-(?P<short>[0-9a-f]{8}))\.partial"), "partial"),
    (re.compile(r"\.(?P<name>.+-(?P<short>[0-9a-f]{8}))\.removed-\w+"), "half removed"),
    (re.compile(r"(?P<name>[^.].*-(?P<short>[0-9a-f]{8}))\.damaged-\w+"), "set aside"),
    (re.compile(r"(?P<name>[^.].*-(?P<short>[0-9a-f]{8}))"), "whole"),
)


@dataclass(frozen=True)
class Entry:
    """One directory of a stage. `name` is the artifact's, also where the directory is what is left of it."""

    path: Path
    stage: str
    name: str
    short: str  # first 8 digits of the fingerprint
    kind: Kind
    reason: str
    bytes: int
    changed: datetime  # when made; without a record, when last written to
    record: dict[str, Any] | None

    @property
    def address(self) -> str:
        """Address of the artifact, relative to the store."""
        return f"{self.stage}/{self.name}"

    @property
    def fingerprint(self) -> str | None:
        """The whole fingerprint, where there is a record."""
        return self.record.get("fingerprint") if self.record else None

    @property
    def inputs(self) -> frozenset[str]:
        """Fingerprints of what it was made from."""
        return frozenset(map(str, self.record.get("inputs", {}).values())) if self.record else frozenset()


def inventory(root: Path, *, digests: bool = False) -> list[Entry]:
    """Everything in the store, by stage and name; contents of files are read only with `digests`."""
    making = {(holder.stage, holder.short) for holder in holders(root) if holder.alive}
    return list(_entries(root, making, digests))


def used_by(entries: list[Entry]) -> dict[str, list[Entry]]:
    """For each fingerprint the artifacts that were made from it."""
    users: dict[str, list[Entry]] = {}
    for entry in entries:
        for fingerprint in entry.inputs if entry.kind in ("whole", "weights removed") else ():
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


def _entries(root: Path, making: set[tuple[str, str]], digests: bool) -> Iterator[Entry]:
    for path in sorted(root.glob("*/*")):
        for pattern, kind in _NAMES:
            if (match := pattern.fullmatch(path.name)) and path.is_dir():
                stage, short = path.parent.name, match["short"]
                if kind == "partial" and (stage, short) in making:
                    kind = "being made"
                entry = _entry(path, match["name"], short, kind, digests)
                if entry:
                    yield entry
                break


def _entry(path: Path, name: str, short: str, kind: Kind, digests: bool) -> Entry | None:
    record, reason = read_record(path), _REASONS.get(kind, "")
    if kind == "whole":
        fault = (
            (record_fault(path, record) or files_fault(path, record, digests=digests))
            if record
            else "no readable record.json"
        )
        if fault:
            kind, reason = "damaged", fault
        elif removed_weights(path):
            kind, reason = "weights removed", "its record stays; made again if something needs the weights"
    try:
        changed = _changed(path, record)
    except OSError:  # went meanwhile
        return None
    return Entry(path, path.parent.name, name, short, kind, reason, size(path), changed, record)


def _changed(path: Path, record: dict[str, Any] | None) -> datetime:
    try:
        return datetime.fromisoformat((record or {})["started"])
    except (KeyError, TypeError, ValueError):
        newest = max([path, *path.rglob("*")], key=lambda file: file.lstat().st_mtime)
        return datetime.fromtimestamp(newest.lstat().st_mtime, UTC)


_REASONS: dict[Kind, str] = {
    "partial": "left by a run that was cut; the next run goes on from it",
    "being made": "a run is making it",
    "half removed": "left by a clean-up that was cut",
    "set aside": "was found damaged, and set aside",
}
