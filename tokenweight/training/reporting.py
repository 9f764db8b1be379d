"""Where a run's step numbers go: metrics.jsonl always, TensorBoard by default, Weights & Biases where asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenweight.training.metrics import MetricsFile


class StepReports:
    """All reports of a run, opened in its first process.

    After `done_steps` steps of an earlier attempt: metrics.jsonl is cut back to them and the others are written anew
    from it, so that no step appears twice (their wall times are then those of the new attempt).
    """

    def __init__(self, out_dir: Path, report_to: Sequence[str], done_steps: int) -> None:
        self.file = MetricsFile(out_dir / "metrics.jsonl")
        self.file.cut_back_to(done_steps)
        self.board = _tensorboard(out_dir / "tensorboard") if "tensorboard" in report_to else None
        self.wandb = _wandb(out_dir) if "wandb" in report_to else None
        for row in self.file.read():
            self._send(row)

    def add(self, row: dict[str, Any]) -> None:
        """Report one step."""
        self.file.append(row)
        self._send(row)

    def _send(self, row: dict[str, Any]) -> None:
        numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
        if self.board is not None:
            for name, value in numbers.items():
                self.board.add_scalar(name, value, row["step"])
            self.board.flush()
        if self.wandb is not None:
            self.wandb.log(numbers, step=row["step"])

    def close(self) -> None:
        """Write what is left."""
        if self.board is not None:
            self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    return SummaryWriter(str(folder))


def _wandb(out_dir: Path) -> Any:
    """A W&B run, one of the artifact's group; WANDB_MODE is W&B's own, and HF_HUB_OFFLINE=1 also means offline."""
    import wandb  # type: ignore[import-not-found, unused-ignore]

    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    mode = os.environ.get("WANDB_MODE") or ("offline" if offline else None)
    name = out_dir.name.removeprefix(".").removesuffix(".partial")
    return wandb.init(project="tokenweight", group=name, name=name, dir=str(out_dir), mode=mode)
