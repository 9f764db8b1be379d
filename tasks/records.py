"""The records of a store as one small file: what tables, figures and tests are made from, without weights and data.

Unpacked into a store (`tar xf`), finished evaluations are found there and not run again; what has left its weights or
tokens behind is made again only where something that is still missing needs it.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from tokenweight.store.store import RECORD

LEFT_BEHIND = (".npy", ".safetensors")  # tokens, scores, weights
LEFT_BEHIND_NAMES = ("tokenizer.json", "prompts.jsonl")


def write_records(store: Path, file: Path) -> int:
    """Pack every finished artifact's small files, whole or not at all; returns how many artifacts there are."""
    finished = sorted(record.parent for record in store.glob(f"*/[!.]*/{RECORD}"))
    part = file.with_name(f"{file.name}.part")
    with tarfile.open(part, "w:xz", preset=1) as archive:
        for artifact in finished:
            for path in sorted(artifact.rglob("*")):
                if path.is_file() and path.suffix not in LEFT_BEHIND and path.name not in LEFT_BEHIND_NAMES:
                    archive.add(path, path.relative_to(store).as_posix())
    os.replace(part, file)
    return len(finished)
