"""JSON Lines that others wrote: a bad line is named by file and number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError


def check_folder(directory: Path, wanted: str) -> None:
    """UserError unless `directory` is one; `wanted` is what it should hold."""
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory; give the folder that holds {wanted}")


def rows(path: Path, *fields: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line that is not blank; each has `fields`.

    UserError: unreadable, not UTF-8, a line that is no JSON object (half-written, say) or lacks a field.
    """
    try:
        # Not splitlines(): predictions may hold characters such as U+2028 that JSON leaves as they are.
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            row = json.loads(line)
        except UnicodeDecodeError:
            raise UserError(f"{where}: is not UTF-8; give the file as it was written") from None
        except ValueError as error:
            raise UserError(f"{where}: is not JSON ({error}); it may be half-written, remove or repair it") from None
        if not isinstance(row, dict):
            raise UserError(f"{where}: is no JSON object; expected one with {', '.join(fields)}")
        if missing := [name for name in fields if name not in row]:
            raise UserError(f"{where}: has no field {missing[0]!r}; expected {', '.join(fields)}")
        yield number, row
