"""Numbers of each optimizer step: summed over micro-batches and processes, one JSON line per step."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class StepMetrics:
    """Sums over the predictions of one optimizer step; :meth:`finish` reduces them over processes."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(6, dtype=torch.float64, device=device)
        self.started = time.perf_counter()

    @torch.no_grad()
    def add(self, nll: Tensor, weights: Tensor) -> None:
        """Count a micro-batch: nll and weights [B, M]."""
        nll, weights = nll.double(), weights.double()
        self.sums += torch.stack(
            [
                (nll * weights).sum(),
                nll.sum(),
                weights.sum(),
                weights.square().sum(),
                (weights == 0).sum(),
                torch.tensor(nll.numel(), dtype=torch.float64, device=nll.device),
            ]
        )

    def finish(self) -> dict[str, float]:
        """The step's means over all processes; starts the next step's sums and clock."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.sums)
        weighted, nll, weight, squares, zeros, count = self.sums.tolist()
        self.sums.zero_()
        now = time.perf_counter()
        seconds, self.started = now - self.started, now
        mean = weight / count
        return {
            "weighted_nll": weighted / count,
            "nll": nll / count,
            "weight_std": math.sqrt(max(squares / count - mean**2, 0.0)),
            "zero_weight_share": zeros / count,
            "predictions": count,
            "predictions_per_second": count / seconds,
            "seconds": seconds,
        }


class MetricsFile:
    """metrics.jsonl of a train artifact: appended step by step, cut back to the checkpoint on resume."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut_back_to(self, step: int) -> None:
        """Forget the lines after `step`, and a half-written one."""
        rows = [row for row in self.read() if row["step"] <= step]
        partial = self.path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(partial, self.path)

    def append(self, row: dict[str, Any]) -> None:
        """Add one step."""
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        if not self.path.is_file():
            return []
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows
