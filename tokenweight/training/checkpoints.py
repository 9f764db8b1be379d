"""Intermediate checkpoints: which are complete, which is the last of them, and which run can resume from it.

Loads no torch, so that a plan can ask.
"""

import json
import logging
import os
import shutil
import sys
from pathlib import Path

from tokenweight.errors import StageError, UserError
from tokenweight.files import read_json, replace_file
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.launch import run_guarded

logger = logging.getLogger(__name__)

MARKER = "complete.json"
CONVERSIONS = "converted.json"
FOLDER = "checkpoints"  # in a train artifact
JOINED = "latest_universal"  # by which DeepSpeed finds a checkpoint's parts joined by parameter
# What of an execution decides how a checkpoint is split, and by which sums a step's gradient is made.
SPLIT = ("processes", "sequence_parallel", "micro_batch_sequences", "deepspeed_stage")

Split = dict[str, int]


def mark_complete(checkpoint: Path, execution: Execution) -> None:
    """Note how a finished checkpoint was made and the size of each file; only a marked one is resumed from.

    Raises StageError where a process's part is not there (each node writes its own: they must share the directory).
    """
    for pattern in ("rng_state*.pth", *(["global_step*/*_optim_states.pt"] if execution.deepspeed_stage else [])):
        parts = len(list(checkpoint.glob(pattern)))
        if parts != execution.processes:
            raise StageError(
                f"{checkpoint}: {parts} of {execution.processes} processes left {pattern} here; "
                "all nodes must write to one shared directory"
            )
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != MARKER)
    sizes = {str(file.relative_to(checkpoint)): file.stat().st_size for file in files}
    replace_file(checkpoint / MARKER, json.dumps({"made_with": split_of(execution), "bytes": sizes}, indent=1) + "\n")


def last_complete(folder: Path) -> tuple[Path | None, list[Path]]:
    """The newest complete checkpoint, each file of the size that it was finished with, or None; and broken newer ones."""
    broken: list[Path] = []
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=checkpoint_step, reverse=True):
        try:
            sizes = json.loads((checkpoint / MARKER).read_text())["bytes"]
            if all((checkpoint / name).stat().st_size == size for name, size in sizes.items()):
                return checkpoint, broken
        except (OSError, ValueError, KeyError):
            pass
        broken.append(checkpoint)
    return None, broken


def delete_broken(broken: list[Path]) -> None:
    """Delete checkpoints of a run that was killed while it wrote, each with a warning: nothing may mix with them."""
    for checkpoint in broken:
        logger.warning("%s is incomplete (the run was interrupted while it wrote it): skipped", checkpoint.name)
        shutil.rmtree(checkpoint)


def checkpoint_step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def split_of(execution: Execution) -> Split:
    return execution.model_dump(include=set(SPLIT))


def made_with(checkpoint: Path) -> Split:
    split: Split = json.loads((checkpoint / MARKER).read_text())["made_with"]
    return split


def needs_resharding(checkpoint: Path, execution: Execution) -> bool:
    """Whether DeepSpeed's parts of the checkpoint belong to another number of processes."""
    return execution.deepspeed_stage > 0 and made_with(checkpoint)["processes"] != execution.processes


def check_resume(checkpoint: Path, execution: Execution) -> None:
    """Raise UserError where a run cannot resume from a complete checkpoint as it was made, or was not asked to convert it.

    Bit for bit it resumes only when split as before, with execution.convert_checkpoints up to rounding: every process
    reads the whole checkpoint, with ZeRO its parts joined and cut anew. Nothing converts those of another ZeRO stage.
    """
    made, present = made_with(checkpoint), split_of(execution)
    convertible = made["deepspeed_stage"] == present["deepspeed_stage"]
    if made == present or (convertible and execution.convert_checkpoints):
        return
    changed = [name for name in SPLIT if made[name] != present[name]]
    before, now = (", ".join(f"{name} {split[name]}" for name in changed) for split in (made, present))
    convert = "pass --execution convert_checkpoints=true to resume up to rounding, " if convertible else ""
    raise UserError(
        f"{checkpoint}: was written with {before}, this run has {now}; resume with {before}, {convert}"
        f"or delete {checkpoint.parent} to start again"
    )


def prepare_resume(checkpoint: Path, execution: Execution) -> None:
    """Make a checkpoint that was split otherwise readable for this run, and remember that beside the checkpoints.

    UserError where that is not asked for, StageError where DeepSpeed's converter fails.
    """
    check_resume(checkpoint, execution)
    made, entries = made_with(checkpoint), conversions(checkpoint.parent)
    entry = {"step": checkpoint_step(checkpoint), **made}
    if made != split_of(execution) and entry not in entries:
        replace_file(checkpoint.parent / CONVERSIONS, json.dumps([*entries, entry]) + "\n")
    if needs_resharding(checkpoint, execution) and not (checkpoint / JOINED).is_file():
        _join(checkpoint)


def conversions(folder: Path) -> list[Split]:
    """Step and split of each checkpoint from which a run resumed under another split: not bit for bit from there."""
    return read_json(folder / CONVERSIONS) or []


def _join(checkpoint: Path) -> None:
    """Add to a ZeRO checkpoint its parts joined by parameter (DeepSpeed's universal checkpoints)."""
    parts = checkpoint / (checkpoint / "latest").read_text().strip()
    joined = parts.with_name(f"{parts.name}_universal")
    partial = checkpoint / f"{JOINED}.partial"
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
    (checkpoint / JOINED).write_text(joined.name)
