"""The records of a store as one small file: what tables, figures and tests are made from, without weights and data.

Unpacked into a store (`tar xf`), finished evaluations are found there and not run again; what has left its weights or
tokens behind is made again only where something that is still missing needs it.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tokenweight.store.store import RECORD

LEFT_BEHIND = (".npy", ".safetensors")  # tokens, scores, weights
LEFT_BEHIND_NAMES = ("tokenizer.json", "prompts.jsonl")
LEFT_BEHIND_FOLDERS = ("tensorboard",)  # what metrics.jsonl has
# A window as wide as all records: those of one task have the same prompts with every model.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 128 << 20}]


def write_records(store: Path, file: Path) -> int:
    """Pack every finished artifact's small files, whole or not at all; returns how many artifacts there are."""
    artifacts = (record.parent for record in store.glob(f"*/[!.]*/{RECORD}"))
    finished = [artifact for artifact in artifacts if re.fullmatch(r".+-[0-9a-f]{8}", artifact.name)]  # none set aside
    part = file.with_name(f"{file.name}.part")
    with lzma.open(part, "wb", filters=_FILTERS) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted((path for artifact in finished for path in _kept(artifact)), key=_alike):
            archive.add(path, path.relative_to(store).as_posix(), filter=_of_nobody)
    os.replace(part, file)
    return len(finished)


def _kept(artifact: Path) -> Iterator[Path]:
    for path in artifact.rglob("*"):
        left = path.suffix in LEFT_BEHIND or path.name in LEFT_BEHIND_NAMES or path.parent.name in LEFT_BEHIND_FOLDERS
        if path.is_file() and not left:
            yield path


def _alike(path: Path) -> tuple[str, str, str]:
    """Sorts files with like contents together: those of one task by all models, which shrinks the archive to a half."""
    task = re.sub(r"-[0-9a-f]{8}$", "", path.parent.name).rpartition("--")[2]
    return path.name, task, path.as_posix()


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
