"""A list of digests in place of a directory: enough to plan a run and to report it, not to compute anything.

`cd DIR && find . -type f | sort | xargs sha256sum > ../DIR.sha256` writes one; whoever has the records of a run and this list
renders its tables without the data.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tokenweight.errors import UserError

SUFFIX = ".sha256"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(\S.*)")


def is_listing(path: Path) -> bool:
    """Whether `path` is a list of digests rather than a directory."""
    return path.suffix == SUFFIX and path.is_file()


def listed_files(listing: Path) -> dict[str, str]:
    """SHA-256 by relative path, of every file of a list; UserError for a line that is not one of `sha256sum`."""
    stat = listing.stat()
    return _read(listing, stat.st_mtime_ns, stat.st_size)


@cache
def _read(listing: Path, _time: int, _size: int) -> dict[str, str]:
    digests: dict[str, str] = {}
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(f"{listing}, line {number}: not a line of `sha256sum`; write the list by it")
        digests[match[2]] = match[1]
    return digests


def listed_digest(path: Path) -> str | None:
    """The digest of a file below a list, e.g. of books.sha256/emma.txt; None for a file that no list has."""
    for parent in path.parents:
        if parent.suffix == SUFFIX and is_listing(parent):
            return listed_files(parent).get(path.relative_to(parent).as_posix())
    return None


def is_there(path: Path) -> bool:
    """Whether the file itself, or its digest in a list, is there."""
    return listed_digest(path) is not None or path.is_file()


def refuse_listing(setting: str, path: Path) -> None:
    """UserError where something would read a file of which there is only the digest."""
    if is_listing(path):
        raise UserError(
            f"{setting}: {path} has digests alone, enough to plan and report; to compute, give the directory"
        )
