"""Files for people to read: each is there complete or not at all, and a disk that refuses is one line."""

import json
import os
import resource
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenweight.errors import UserError

LEAST_OPEN_FILES = 1024
LEAST_ADDRESS_SPACE = 4 * 2**30  # bytes; of it torch and pyarrow take 3 before any model
LISTING_SUFFIX = ".sha256"  # of a list of digests, which takes the place of a directory (pipeline/digests.py reads it)


def check_writable(option: str, directory: Path) -> None:
    """UserError, before anything is computed, unless files can be written into `directory` (made where it is not)."""
    place = directory.absolute()
    try:
        place = next(parent for parent in (place, *place.parents) if parent.exists())
        TemporaryDirectory(prefix=".tokenweight-", dir=place).cleanup()  # /proc says that it can be written
    except OSError:
        raise UserError(
            f"{option} {directory}: {place} is not a directory that can be written; choose another"
        ) from None


def check_limits() -> None:
    """Let this process and its children open as many files as a run needs.

    UserError where the shell allows too few, workers and server would wait for each other without a word; or too little
    memory, which ends each library in words of its own.
    """
    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    if memory != resource.RLIM_INFINITY and memory < LEAST_ADDRESS_SPACE:
        raise UserError(
            f"ulimit -v: {memory // 1024} KiB of memory are too few for a run; raise it to {LEAST_ADDRESS_SPACE // 1024} or more"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    if not unlimited and hard < LEAST_OPEN_FILES:
        raise UserError(f"ulimit -n: {hard} open files are too few for a run; raise it to {LEAST_OPEN_FILES} or more")
    if soft != resource.RLIM_INFINITY and soft < LEAST_OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_OPEN_FILES, hard))


def read_json(path: Path) -> Any:
    """What a JSON file holds; None where it is not there or cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def writing(where: str, instead: str) -> Iterator[None]:
    """UserError where the disk refuses: `where` names what was asked for, `instead` what to choose."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{where}: cannot be written ({error.strerror}); choose {instead}") from None


@contextmanager
def new_directory(option: str, target: Path) -> Iterator[Path]:
    """A directory to fill that lies at `target` once the block is left without an error; `option` names it in a UserError."""
    partial = target.with_name(f".{target.name}.partial")
    with writing(f"{option} {target}", "another"):
        shutil.rmtree(partial, ignore_errors=True)  # of an attempt that was interrupted
        partial.mkdir(parents=True)
        try:
            yield partial
            partial.replace(target)  # which is empty, or is not there
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def check_new(option: str, directory: Path) -> Path:
    """The directory, resolved; UserError where it cannot be written, or has something in it."""
    target = directory.expanduser().resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{option} {directory}: is not empty; choose another")
    check_writable(option, target)
    return target


def write_files(contents: Mapping[Path, str | bytes], where: str, instead: str = "another --out") -> None:
    """Write each file, in directories that are made where they are not there; see :func:`writing`."""
    with writing(where, instead):
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8) complete or not at all, also where the machine loses its power."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
