"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tokenweight.errors import UserError


def check_writable(out_dir: Path) -> None:
    """UserError, before anything is computed, unless files can be written into `out_dir` (made where it is not)."""
    place = next(parent for parent in (out_dir.absolute(), *out_dir.absolute().parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"--out {out_dir}: {place} is not a directory that can be written; choose another")


def write_files(out_dir: Path, texts: dict[str, str]) -> list[Path]:
    """Write each text under its file name; returns the paths. UserError where the disk refuses."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        return [_replace(out_dir / name, text) for name, text in texts.items()]
    except OSError as error:
        raise UserError(f"--out {out_dir}: cannot be written ({error.strerror}); choose another") from None


def _replace(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
