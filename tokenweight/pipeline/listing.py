"""A list of digests in place of a directory: enough to plan a run and to report it, not to compute anything.

`(cd DIR && find . -xtype f -print0 | sort -z | xargs -0 sha256sum) > DIR.sha256` writes one; whoever has the records of a
run and this list renders its tables without the data.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath

from tokenweight.errors import UserError

SUFFIX = ".sha256"
_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)", re.DOTALL)


def is_listing(path: Path) -> bool:
    """Whether `path` is a list of digests rather than a directory."""
    return path.suffix == SUFFIX and path.is_file()


def listed_files(listing: Path) -> dict[str, str]:
    """SHA-256 by relative path, of every file of a list; UserError for a line that is not one of `sha256sum`."""
    stat = listing.stat()
    return _read(listing, stat.st_mtime_ns, stat.st_size)


@cache
def _read(listing: Path, _time: int, _size: int) -> dict[str, str]:
    try:
        text = listing.read_bytes().decode("utf-8-sig", errors="surrogateescape")  # names may be in any encoding
    except OSError as error:
        raise UserError(f"{listing}: cannot be read ({error.strerror})") from None
    digests: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            name, digest = _entry(listing, number, line.removesuffix("\r"))
            if digests.setdefault(name, digest) != digest:
                raise UserError(
                    f"{listing}, line {number}: {name} is there twice, with other digests; write the list anew"
                )
    if not digests:
        raise UserError(f"{listing}: is empty; write it by `sha256sum` in the directory that it stands for")
    return digests


def _entry(listing: Path, number: int, line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        shown = repr(line[:40])
        raise UserError(f"{listing}, line {number}: {shown} is not a line of `sha256sum`; write the list by it")
    escaped, digest, name = match.groups()
    if escaped:  # how sha256sum writes names with a newline or a backslash in them
        name = re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{listing}, line {number}: {name} is no path below the directory; write the list in it")
    return path.as_posix(), digest.lower()


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
