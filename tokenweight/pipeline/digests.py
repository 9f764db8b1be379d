"""Content digests of files, remembered by (path, size, modification time), or from a list in place of the files.

`(cd DIR && find . -xtype f -print0 | sort -z | xargs -0 sha256sum) > DIR.sha256` writes a list: enough to plan a run and to
report it, not to compute anything. Whoever has the records of a run and this list renders its tables without the data.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

from filelock import FileLock

from tokenweight.errors import UserError
from tokenweight.files import LISTING_SUFFIX, read_json, replace_file

_WAIT_SECONDS = 10.0  # for a lock; where none can be had, digests are computed again
_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)", re.DOTALL)


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Digests:
    """A small cache of file digests in `<store>/digests.json`; losing it costs only time."""

    def __init__(self, store_root: Path) -> None:
        self._path = store_root / "digests.json"
        self._known: dict[str, list[object]] = read_json(self._path) or {}
        self._new: dict[str, list[object]] = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of one file; read again only where size or modification time changed, or as a list has it."""
        if (listed := listed_digest(path)) is not None:
            return listed
        key, stat = str(path.resolve()), path.stat()
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
        """Keep what was read, where there is a store that can be written (a plan makes none); safe beside other processes."""
        if not self._new or not self._path.parent.is_dir():
            return
        lock = FileLock(f"{self._path}.lock", timeout=_WAIT_SECONDS)
        with suppress(OSError), lock:
            self._known = (read_json(self._path) or {}) | self._new
            replace_file(self._path, json.dumps(self._known))
        self._new = {}


def is_listing(path: Path) -> bool:
    return path.suffix == LISTING_SUFFIX and path.is_file()


def listed_files(listing: Path) -> dict[str, str]:
    """SHA-256 by relative path, of every file of a list; UserError for a line that is not one of `sha256sum`."""
    stat = listing.stat()
    return _read(listing, stat.st_mtime_ns, stat.st_size)


@cache
def _read(listing: Path, _time: int, _size: int) -> dict[str, str]:
    try:
        text = listing.read_bytes().decode("utf-8-sig", errors="surrogateescape")  # names may be in any encoding
    except OSError as error:
        raise UserError(f"{listing}: cannot be read ({error.strerror}); give a readable file") from None
    digests: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{listing}, line {number}"
        match = _LINE.fullmatch(line.removesuffix("\r"))
        if match is None:
            raise UserError(f"{where}: {line[:40]!r} is not a line of `sha256sum`; write the list with it")
        escaped, digest, name = match.groups()
        if escaped:  # how sha256sum writes names with a newline or a backslash in them
            name = re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"{where}: {name} is not a path below the directory; write the list in it")
        if digests.setdefault(path.as_posix(), digest.lower()) != digest.lower():
            raise UserError(f"{where}: {path} occurs twice, with different digests; write the list again")
    if not digests:
        raise UserError(f"{listing}: is empty; write it with `sha256sum` in the directory that it replaces")
    return digests


def listed_digest(path: Path) -> str | None:
    """The digest of a file below a list, e.g. of books.sha256/emma.txt; None for a file that no list has."""
    for parent in path.parents:
        if is_listing(parent):
            return listed_files(parent).get(path.relative_to(parent).as_posix())
    return None


def is_there(path: Path) -> bool:
    """Whether the file itself, or its digest in a list, is there."""
    return listed_digest(path) is not None or path.is_file()


def refuse_listing(setting: str, path: Path) -> None:
    """UserError where something would read a file of which there is only the digest."""
    if is_listing(path):
        raise UserError(
            f"{setting}: {path} has only digests, enough to plan and report; to compute, give the directory"
        )
