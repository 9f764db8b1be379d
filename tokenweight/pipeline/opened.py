"""A store as commands and flows open it: where one can be written, and of this version."""

from __future__ import annotations

import os
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline.store import RECORD, RECORD_VERSION, Store, read_record


def open_store(path: Path) -> Store:
    """The store at a path, which need not exist yet. UserError where none can be written, or an earlier version's lies."""
    root = path.expanduser().resolve()
    place = next(parent for parent in (root, *root.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"--store {path}: {place} is not a directory that can be written; choose another")
    return existing_store(path) if root.is_dir() else Store(root)


def existing_store(path: Path) -> Store:
    """The store that is at a path. UserError where there is none, or one of an earlier version."""
    root = path.expanduser().resolve()
    if not root.is_dir():
        raise UserError(f"--store {path}: no such directory; name the one of your runs")
    record = next(root.glob(f"*/*/{RECORD}"), None)  # one is as good as all: no version writes into another's store
    if record and (read_record(record.parent) or {}).get("record_version", RECORD_VERSION) < RECORD_VERSION:
        raise UserError(f"--store {path}: was made by tokenweight 0.1; choose another --store")
    return Store(root)
