"""The records of a store as one small file: what tables, figures and tests are made from, without weights and data.

Unpacked into a store (`tar xf`), finished evaluations are found there and not run again; what has left its weights or
tokens behind counts as removed by `store gc --weights`: its record stays, and it is made again only where something that is
still missing needs it.
"""

import io
import json
import lzma
import os
import re
import tarfile
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline.inventory import inventory
from tokenweight.pipeline.manifest import FOLDER as MANIFESTS
from tokenweight.pipeline.store import RECORD, WEIGHTS_REMOVED
from tokenweight.progress import counted

SUFFIX = ".tar.xz"
# Tokens, scores, weights; what metrics.jsonl has; of WEIGHTS_REMOVED, each archive has its own.
LEFT_BEHIND = ("*.npy", "*.safetensors", "tokenizer.json", "prompts.jsonl", WEIGHTS_REMOVED, "tensorboard/*")


def check_place(store: Path, file: Path) -> None:
    """Raise UserError where an archive of the store's records cannot be written, or would take the place of more than it has."""
    if not file.name.endswith(SUFFIX):
        raise UserError(f"{file}: the archive needs the suffix {SUFFIX}; rename it")
    if file.exists() and not file.is_file():
        raise UserError(f"{file}: exists and is not a file; choose another place")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise UserError(f"{file}: {file.parent} is not a directory that can be written to; choose another place")
    if file.resolve().is_relative_to(store.resolve()):
        raise UserError(f"{file}: lies in the store that it would pack; choose a place outside")
    lost = [address for address in _packed(file) if not (store / address).is_dir()] if file.exists() else []
    if lost:
        raise UserError(
            f"{file}: has {counted(len(lost), 'artifact')} that the store lacks, such as {lost[0]}; unpack it into the "
            "store first, or choose another place"
        )


def _packed(file: Path) -> list[str]:
    try:
        with tarfile.open(file, "r:xz") as archive:
            names = archive.getnames()
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError):
        raise UserError(f"{file}: exists and is not an archive of records; choose another place") from None
    return [name.removesuffix(f"/{RECORD}") for name in names if name.endswith(f"/{RECORD}")]


def write_records(store: Path, file: Path) -> int:
    """Pack the small files of every finished, sound artifact, and the manifests; how many artifacts. With none it writes nothing.

    UserError where the archive cannot be written there.
    """
    check_place(store, file)
    finished = [entry for entry in inventory(store) if entry.is_usable]
    if not finished:
        return 0
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    kept = [
        path for entry in finished for path in entry.path.rglob("*") if path.is_file() and not _is_left_behind(path)
    ]
    try:
        with tarfile.open(part, "w:xz", preset=6) as archive:
            for path in [*sorted(kept, key=_alike), *sorted((store / MANIFESTS).glob("*.json"))]:
                archive.add(path, path.relative_to(store).as_posix(), filter=_of_nobody)
            for entry in finished:
                if names := [name for name in entry.outputs if _is_left_behind(Path(name))]:
                    content = json.dumps(names).encode()
                    member = tarfile.TarInfo(f"{entry.address}/{WEIGHTS_REMOVED}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        os.replace(part, file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error}); try again, or choose another place") from None
    finally:
        part.unlink(missing_ok=True)
    return len(finished)


def _is_left_behind(path: Path) -> bool:
    return any(map(path.match, LEFT_BEHIND))


def _alike(path: Path) -> tuple[str, str, str]:
    """Sorts files with like contents together: those of one task by all models, which shrinks the archive to a half."""
    task = re.sub(r"-[0-9a-f]{8}$", "", path.parent.name).rpartition("--")[2]
    return path.name, task, path.as_posix()


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
