"""DeepSpeed's checkpoint of one number of processes, made readable for any other (DeepSpeed's universal checkpoints)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tokenweight.errors import StageError
from tokenweight.progress import no_progress
from tokenweight.training.launch import run_guarded

POINTER = "latest_universal"  # by which DeepSpeed finds the converted parts


def reshard(checkpoint: Path) -> None:
    """Add to a ZeRO checkpoint its parts joined by parameter; nothing to do where an earlier attempt did.

    Raises StageError where DeepSpeed's converter fails.
    """
    if (checkpoint / POINTER).is_file():
        return
    parts = checkpoint / (checkpoint / "latest").read_text().strip()
    joined = parts.with_name(f"{parts.name}_universal")
    partial = checkpoint / f"{POINTER}.partial"
    for leftover in (joined, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    command = [
        *(sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"),
        *("--input_folder", str(parts), "--output_folder", str(partial)),
    ]
    status, tail = run_guarded(command, dict(os.environ), no_progress)
    if status != 0:
        raise StageError(f"{checkpoint}: DeepSpeed could not convert it: " + " | ".join(tail[-3:]))
    partial.rename(joined)
    (checkpoint / POINTER).write_text(joined.name)
