"""Where a run's step numbers go: metrics.jsonl always, TensorBoard by default, Weights & Biases where asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenweight.files import replace_file


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics.jsonl, one a step."""
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:  # half-written
            break
    return rows


class StepReports:
    """All reports of a run, opened in its first process.

    After `done_steps` steps of an earlier attempt: metrics.jsonl is cut back to them and the others are written anew
    from it, so that no step appears twice (their wall times are then those of the new attempt).
    """

    def __init__(self, out_dir: Path, report_to: Sequence[str], done_steps: int) -> None:
        self.path = out_dir / "metrics.jsonl"
        rows = [row for row in read_metrics(self.path) if row["step"] <= done_steps]
        replace_file(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        self.trackers = [{"tensorboard": _tensorboard, "wandb": _wandb}[name](out_dir) for name in report_to]
        for tracker in self.trackers:
            tracker.start()
        for row in rows:
            self._send(row)

    def add(self, row: dict[str, Any]) -> None:
        """Report one step."""
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._send(row)

    def _send(self, row: dict[str, Any]) -> None:
        numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
        for tracker in self.trackers:
            tracker.log(numbers, step=row["step"])

    def close(self) -> None:
        """Write what is left."""
        for tracker in self.trackers:
            tracker.finish()


def _tensorboard(out_dir: Path) -> Any:
    from accelerate.tracking import TensorBoardTracker

    shutil.rmtree(out_dir / "tensorboard", ignore_errors=True)
    return TensorBoardTracker("tensorboard", out_dir)


def _wandb(out_dir: Path) -> Any:
    """A W&B run, one of the artifact's group; WANDB_MODE is W&B's own, and HF_HUB_OFFLINE=1 also means offline."""
    from accelerate.tracking import WandBTracker

    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    mode = os.environ.get("WANDB_MODE") or ("offline" if offline else None)
    name = out_dir.name.removeprefix(".").removesuffix(".partial")
    return WandBTracker("tokenweight", group=name, name=name, dir=str(out_dir), mode=mode)
