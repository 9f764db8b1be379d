"""Content digests of files, remembered by (path, size, modification time) so that large inputs are read once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from tokenweight.errors import UserError
from tokenweight.pipeline.listing import listed_digest


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Digests:
    """A small cache of file digests in `<store>/digests.json`; losing it costs only time."""

    def __init__(self, store_root: Path) -> None:
        self._path = store_root / "digests.json"
        self._known: dict[str, list[object]] = {}
        if self._path.exists():
            try:
                self._known = json.loads(self._path.read_text())
            except ValueError:
                self._known = {}
        self._new: dict[str, list[object]] = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of one file; read again only where size or modification time changed, or as a list has it."""
        if (listed := listed_digest(path)) is not None:
            return listed
        key = str(path.resolve())
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        known = self._new.get(key) or self._known.get(key)
        if known and known[:2] == stamp:
            return str(known[2])
        sha256 = file_sha256(path)
        self._new[key] = [*stamp, sha256]
        return sha256

    def digest_all(self, paths: Iterable[Path], *, root: Path | None = None) -> dict[str, str]:
        """Digest per file, keyed by the path relative to `root` (or the bare name): no machine's paths in it."""
        return {str(path.relative_to(root)) if root else path.name: self.digest(path) for path in paths}

    def save(self) -> None:
        """Keep what was read; safe beside other processes."""
        if not self._new:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"store {self._path.parent}: cannot be written ({error.strerror}); choose another"
            ) from None
        with FileLock(f"{self._path}.lock"):
            on_disk = {}
            if self._path.exists():
                try:
                    on_disk = json.loads(self._path.read_text())
                except ValueError:
                    on_disk = {}
            temporary = self._path.with_name(f".digests-{os.getpid()}.json")
            temporary.write_text(json.dumps({**on_disk, **self._new}))
            temporary.replace(self._path)
        self._known.update(self._new)
        self._new = {}
