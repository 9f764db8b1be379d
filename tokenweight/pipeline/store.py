"""The store: where an artifact lives, whether it may be reused, and who is making it (architecture, rules 2-5)."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from filelock import SoftFileLease, Timeout

from tokenweight.errors import StageError, UserError
from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.environment import devices, git_state, package_versions, peak_memory_bytes
from tokenweight.pipeline.faults import files_fault, removed_weights
from tokenweight.pipeline.identity import Identity
from tokenweight.pipeline.leases import FOLDER as LEASES
from tokenweight.pipeline.leases import held, lease_of

RECORD = "record.json"
RECORD_VERSION = 2

Note = Callable[[str], None]


@dataclass(frozen=True)
class State:
    """What the store knows of one artifact, and why."""

    kind: Literal["whole", "missing", "damaged", "held", "stripped"]  # stripped: whole but for its weights
    reason: str


@dataclass
class Build:
    """One artifact in the making: write files into `directory`, put what the record shall say into `facts`."""

    identity: Identity
    directory: Path
    facts: dict[str, Any]
    started: datetime
    clock: float


class Store:
    """Artifacts under one directory. An artifact exists whole (its record is written last, then renamed) or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, identity: Identity) -> Path:
        """Directory of the artifact, whether it exists or not."""
        return self.root / identity.address

    def partial(self, identity: Identity) -> Path:
        """Directory in which the artifact is made, and which a cut run leaves behind."""
        path = self.path(identity)
        return path.with_name(f".{path.name}.partial")

    def record(self, identity: Identity) -> dict[str, Any]:
        """The artifact's record; raises StageError where there is none."""
        record = read_record(self.path(identity))
        if record is None:
            raise StageError(f"{identity.address}: no record in the store")
        return record

    def state(self, identity: Identity, *, digests: bool = False) -> State:
        """Whether the artifact may be reused; file sizes are always compared, contents only with `digests`."""
        path = self.path(identity)
        if path.exists():
            fault = self._fault(path, identity, digests=digests)
            if fault:
                return State("damaged", fault)
            if removed_weights(path):
                return State(
                    "stripped",
                    "its weights were removed from the store (store gc --weights), or left out of unpacked records",
                )
            return State("whole", "found in the store")
        if self._held(identity):
            return State("held", "another run is making it")
        if self.partial(identity).exists():
            return State("missing", "an earlier run was cut; it goes on from what is there")
        return State("missing", "not in the store")

    def get_or_build(
        self, identity: Identity, build: Callable[[Build], None], *, note: Note = lambda message: None
    ) -> tuple[Path, bool]:
        """The artifact's directory and whether it was reused; `build` is called only where it is not there whole."""
        if self.state(identity).kind == "whole":
            return self.path(identity), True
        with self.building(identity, note=note) as work:
            if work is None:
                return self.path(identity), True
            build(work)
        return self.path(identity), False

    @contextmanager
    def building(self, identity: Identity, *, note: Note = lambda message: None) -> Iterator[Build | None]:
        """Hold the artifact's lease and make it; yields None where another run finished it meanwhile.

        The directory of the Build may hold what an earlier, cut attempt left there. Leaving the block without an
        error writes the record and publishes the artifact; after a UserError nothing is left behind.
        """
        lease = self._acquire(identity, note)
        try:
            if self._settle(identity, note):
                yield None
                return
            partial = self.partial(identity)
            fresh = not partial.exists()
            if not fresh and any(partial.iterdir()):
                note(f"{identity.address}: goes on from what an earlier run left")
            partial.mkdir(parents=True, exist_ok=True)
            work = Build(identity, partial, {}, datetime.now(UTC), time.perf_counter())
            try:
                yield work
            except UserError:
                if fresh:
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            if lease.compromise is not None:
                raise StageError(f"{identity.address}: the lease was lost to another run; run again")
            self._publish(work)
        finally:
            lease.release()

    def _acquire(self, identity: Identity, note: Note) -> SoftFileLease:
        try:
            (self.root / LEASES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"store {self.root}: cannot be written ({error.strerror}); choose another --store"
            ) from None
        lease = lease_of(self.root, identity.stage, identity.fingerprint)
        try:
            lease.acquire(timeout=0)
        except Timeout:
            note(f"{identity.address}: waiting for another run that is making it")
            lease.acquire(poll_interval=0.5)
        return lease

    def _settle(self, identity: Identity, note: Note) -> bool:
        """With the lease held: True where the artifact is whole; a damaged one is named and set aside."""
        state = self.state(identity)
        if state.kind == "whole":
            return True
        if state.kind == "damaged":
            path = self.path(identity)
            aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
            path.rename(aside)
            note(f"{identity.address}: damaged ({state.reason}); set aside as {aside.name}, made again")
        return False

    def _publish(self, work: Build) -> None:
        """Write the record last, then rename the directory into place."""
        outputs = {
            str(file.relative_to(work.directory)): {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
            for file in sorted(work.directory.rglob("*"))
            if file.is_file() and file.name != RECORD
        }
        if not outputs:
            raise StageError(f"{work.identity.address}: the stage produced no file")
        identity = work.identity
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
            "wall_seconds": round(time.perf_counter() - work.clock, 3),
        }
        write_json(work.directory / RECORD, record)
        self._into_place(work)

    def _into_place(self, work: Build) -> None:
        path = self.path(work.identity)
        if not path.exists():
            os.rename(work.directory, path)
            return
        # All but its weights was there, and served reports until now.
        aside = path.with_name(f".{path.name}.removed-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
        os.rename(path, aside)
        os.rename(work.directory, path)
        shutil.rmtree(aside, ignore_errors=True)

    def _fault(self, path: Path, identity: Identity, *, digests: bool) -> str | None:
        record = read_record(path)
        if record is None:
            return "no readable record.json"
        if record.get("fingerprint") != identity.fingerprint:
            return "its record carries another fingerprint"
        return files_fault(path, record, digests=digests)

    def _held(self, identity: Identity) -> bool:
        """Whether a living run holds the lease (a dead holder's is free)."""
        lease = lease_of(self.root, identity.stage, identity.fingerprint)
        if not Path(lease.lock_file).exists():
            return False
        with held(self.root, identity.stage, identity.fingerprint) as ours:
            return not ours


def read_record(artifact: Path) -> dict[str, Any] | None:
    """The record of an artifact directory, or None where it is absent or unreadable."""
    try:
        record = json.loads((artifact / RECORD).read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "outputs" in record else None


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that the file is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
