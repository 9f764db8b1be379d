"""What is wrong with an artifact's directory: its record, its files, their sizes and contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.identity import Identity

WEIGHTS_REMOVED = "weights-removed.json"  # beside the record: names of the weights that `store gc --weights` took


def record_fault(artifact: Path, record: dict[str, Any]) -> str | None:
    """What of a record does not fit itself or the directory that it lies in; None where all does."""
    try:
        name = artifact.name.rpartition("-")[0]
        identity = Identity(
            record["stage"], record["stage_version"], name, record["config"], record["inputs"]
        )  # fmt: skip
        fingerprint = identity.fingerprint
    except (KeyError, TypeError, ValueError) as error:
        return f"its record cannot be read ({error})"
    if record.get("fingerprint") != fingerprint:
        return "its record was changed: configuration and inputs give another fingerprint"
    if artifact.parent.name != record["stage"] or artifact.name != f"{name}-{fingerprint[:8]}":
        return "its record belongs to another address"
    return None


def files_fault(artifact: Path, record: dict[str, Any], *, digests: bool) -> str | None:
    """Which file of a record is gone or not what it was; sizes always, contents only with `digests`.

    Weights that were removed on purpose are no fault.
    """
    removed = removed_weights(artifact)
    for name, expected in record["outputs"].items():
        file = artifact / name
        if not file.is_file():
            if name in removed:
                continue
            return f"{name} is gone"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {expected['bytes']}"
        if digests and file_sha256(file) != expected["sha256"]:
            return f"{name} has other contents than its record says"
    return None


def removed_weights(artifact: Path) -> list[str]:
    """Files that `store gc --weights` took and that nobody put back."""
    try:
        names = json.loads((artifact / WEIGHTS_REMOVED).read_text())
    except (OSError, ValueError):
        return []
    return [name for name in names if not (artifact / name).is_file()]
