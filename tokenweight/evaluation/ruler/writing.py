"""One JSON Lines file of RULER samples, there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError


def check_writable(path: Path) -> None:
    """UserError, before anything is computed, unless the file can be written (its directories are made)."""
    if path.is_dir():
        raise UserError(f"--out {path}: is a directory; give a file, e.g. {path / 'samples.jsonl'}")
    parents = path.absolute().parents
    place = next(parent for parent in parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"--out {path}: {place} is not a directory that can be written; choose another")


def write_lines(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write one JSON object a line under a temporary name, then move it into place. UserError: the disk refuses."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"--out {path}: cannot be written ({error.strerror}); choose another") from None
    finally:
        temporary.unlink(missing_ok=True)
