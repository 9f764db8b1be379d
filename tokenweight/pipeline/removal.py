"""Clean-up of a store: what nothing needs any more, and how it goes without hurting a run that is at work."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from tokenweight.pipeline.faults import WEIGHTS_REMOVED
from tokenweight.pipeline.inventory import Entry, size, used_by
from tokenweight.pipeline.leases import held, holders
from tokenweight.pipeline.store import write_json

_WEIGHTS = (".safetensors", ".bin", ".pt")
_MODEL = "model"  # the folder of a checkpoint in its artifact
_RESUME = ("checkpoints", "launch")  # of training, gone when it ends well


@dataclass(frozen=True)
class Removal:
    """One thing to remove and why: the whole directory, or only `names` in it."""

    entry: Entry
    why: str
    bytes: int
    names: tuple[str, ...] = ()


def garbage(entries: Iterable[Entry], *, unfinished: bool = False) -> list[Removal]:
    """What no record speaks of and no run could use: leftovers of clean-ups, damaged artifacts that were set aside.

    What a cut run left is kept, for the next one goes on from it; with `unfinished` it is among them.
    """
    entries = list(entries)
    finished = {
        entry.address for entry in entries if entry.kind == "whole"
    }  # removed weights may be made again just now
    found = []
    for entry in entries:
        if entry.kind == "partial" and entry.address in finished:
            found.append(Removal(entry, "its artifact is finished", entry.bytes))
        elif entry.kind == "partial" and not entry.bytes:
            found.append(Removal(entry, "a cut run left it empty", 0))
        elif entry.kind == "partial" and unfinished:
            found.append(Removal(entry, "a cut run left it unfinished", entry.bytes))
        elif entry.kind in ("set aside", "half removed"):
            found.append(Removal(entry, entry.reason, entry.bytes))
        elif entry.kind == "whole" and (folders := _resume_checkpoints(entry)):
            freed = sum(size(entry.path / name) for name in folders)
            found.append(Removal(entry, "resume checkpoints of a finished stage", freed, folders))
    return found


def unneeded(entries: Iterable[Entry], kept: Collection[str]) -> list[Removal]:
    """Artifacts, finished or not, that are neither among the `kept` fingerprints nor what those were made from."""
    entries = list(entries)
    needed, waiting = set[str](), list(kept)
    by_fingerprint = {entry.fingerprint: entry for entry in entries if entry.kind in ("whole", "weights removed")}
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


def weights(entries: Iterable[Entry], needed: Collection[str]) -> list[Removal]:
    """Weights of checkpoints from which something was made, but for the `needed` fingerprints; their records stay."""
    entries = list(entries)
    users = used_by(entries)
    found = []
    for entry in entries:
        if entry.kind != "whole" or not entry.record or entry.fingerprint in needed:
            continue
        names = tuple(name for name in entry.record["outputs"] if _is_weight(name))
        made = users.get(entry.fingerprint or "", ())
        if names and made:
            freed = sum(entry.record["outputs"][name]["bytes"] for name in names)
            found.append(Removal(entry, f"its weights; the records of {len(made)} made from it stay", freed, names))
    return found


def remove(root: Path, removal: Removal) -> bool:
    """Remove it; False where a run holds it now or it is gone already.

    Killed in the middle it leaves no artifact half there: a directory is renamed before its files go, and weights are
    listed as removed before they are.
    """
    entry = removal.entry
    others = (holder for holder in holders(root) if (holder.stage, holder.short) == (entry.stage, entry.short))
    if any(holder.alive for holder in others):
        return False
    with held(root, entry.stage, entry.short) as ours:
        if not ours or not entry.path.is_dir():
            return False
        if removal.names:
            _remove_names(entry.path, removal.names)
        else:
            _remove_all(entry)
    return True


def _remove_all(entry: Entry) -> None:
    aside = entry.path
    if entry.kind != "half removed":
        aside = entry.path.with_name(f".{entry.name}.removed-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        entry.path.rename(aside)
    shutil.rmtree(aside)


def _remove_names(artifact: Path, names: tuple[str, ...]) -> None:
    if any(_is_weight(name) for name in names):
        write_json(artifact / WEIGHTS_REMOVED, list(names))
    for name in names:
        target = artifact / name
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


def _is_weight(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == _MODEL and path.suffix in _WEIGHTS


def _resume_checkpoints(entry: Entry) -> tuple[str, ...]:
    outputs = entry.record["outputs"] if entry.record else {}
    return tuple(
        folder
        for folder in _RESUME
        if (entry.path / folder).is_dir() and not any(name.startswith(f"{folder}/") for name in outputs)
    )
