"""Intermediate checkpoints: which are whole, and which is the last of them."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)

MARKER = "whole.json"


def mark_whole(checkpoint: Path) -> None:
    """Note the size of every file of a finished checkpoint; only a marked one is resumed from."""
    sizes = {str(file.relative_to(checkpoint)): file.stat().st_size for file in _files(checkpoint)}
    partial = checkpoint / f"{MARKER}.partial"
    partial.write_text(json.dumps(sizes, indent=1) + "\n")
    os.replace(partial, checkpoint / MARKER)


def is_whole(checkpoint: Path) -> bool:
    """Whether every file of a checkpoint is there with the size it had when the checkpoint was finished."""
    try:
        sizes = json.loads((checkpoint / MARKER).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def last_whole(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint (None without one) and the names of broken newer ones.

    Broken ones (a run killed while it wrote) are named in a warning and deleted, so that nothing mixes with them.
    """
    broken: list[str] = []
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=checkpoint_step, reverse=True):
        if is_whole(checkpoint):
            return checkpoint, broken
        logger.warning("%s is incomplete (the run was cut while it wrote): skipped", checkpoint.name)
        broken.append(checkpoint.name)
        shutil.rmtree(checkpoint)
    return None, broken


def checkpoint_step(checkpoint: Path) -> int:
    """The optimizer step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _files(checkpoint: Path) -> list[Path]:
    return [path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != MARKER]
