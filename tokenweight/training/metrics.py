"""Numbers of each optimizer step, summed over micro-batches and processes, and where they go.

metrics.jsonl and progress always, TensorBoard by default, Weights & Biases and Trackio where asked for.
"""

import json
import math
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, distributed

from tokenweight.files import replace_file
from tokenweight.progress import Progress

RECENT_STEPS = 20

Row = dict[str, float | None]


@dataclass
class StepMetrics:
    """Sums over the predictions of one optimizer step; :meth:`finish` reduces them over processes."""

    device: torch.device
    sequence_flops: float | None = None  # of training on one sequence; without it there is no MFU
    peak_flops: float | None = None  # of one device in a second; without it there is none either
    sequence_parallel: int = 1  # processes that share each sequence, and each count it

    def __post_init__(self) -> None:
        self.sums = torch.zeros(7, dtype=torch.float64, device=self.device)
        self.started = time.perf_counter()

    @torch.no_grad()
    def add(self, nll: Tensor, weights: Tensor) -> None:
        """Count a micro-batch: nll and weights [B, M]."""
        nll, weights = nll.double(), weights.double()
        sums = [(nll * weights).sum(), nll.sum(), weights.sum(), weights.square().sum(), (weights == 0).sum()]
        self.sums += torch.stack([*sums, nll.new_tensor(nll.numel()), nll.new_tensor(len(nll))])

    def finish(self) -> Row:
        """The step's means over all processes, the peak of that with most memory; starts the next step's sums and clock."""
        peak = torch.tensor(float(_peak_memory_bytes(self.device)), dtype=torch.float64, device=self.device)
        processes = 1
        if distributed.is_initialized():
            distributed.all_reduce(self.sums)
            distributed.all_reduce(peak, op=distributed.ReduceOp.MAX)
            processes = distributed.get_world_size()
        weighted, nll, weight, squares, zeros, count, sequences = self.sums.tolist()
        sequences /= self.sequence_parallel
        self.sums.zero_()
        now = time.perf_counter()
        seconds, self.started = now - self.started, now
        mean = weight / count
        mfu = None
        if self.sequence_flops and self.peak_flops:
            mfu = self.sequence_flops * sequences / seconds / (self.peak_flops * processes)
        return {
            "weighted_nll": weighted / count,
            "nll": nll / count,
            "weight_std": math.sqrt(max(squares / count - mean**2, 0.0)),
            "zero_weight_share": zeros / count,
            "predictions": count,
            "seconds": seconds,
            "tokens_per_second": (count + sequences) / seconds,  # a sequence predicts all its tokens but the first
            "mfu": mfu,
            "peak_memory_bytes": peak.item(),
        }


def _peak_memory_bytes(device: torch.device) -> int:
    """Peak GPU memory since the last call; on a CPU what is resident now."""
    if device.type != "cuda":
        return psutil.Process().memory_info().rss
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


def eta_seconds(step_seconds: Sequence[float], steps_left: int) -> float | None:
    """Seconds left, from the median of recent steps; the first step warms up and does not count."""
    recent = step_seconds[1:][-RECENT_STEPS:]
    return statistics.median(recent) * steps_left if recent else None


def same_on_all_ranks(reason: str | None) -> str | None:
    """The first process's reason to stop, in every process; None where none has one.

    A process that raised alone would leave the others waiting in their next reduction.
    """
    if not distributed.is_initialized():
        return reason
    reasons: list[str | None] = [None] * distributed.get_world_size()
    distributed.all_gather_object(reasons, reason)
    return next((given for given in reasons if given is not None), None)


def describe(row: dict[str, Any]) -> str:
    line = (
        "NLL {nll:.4f}, weighted {weighted_nll:.4f}, weight std {weight_std:.2f}, zero weights {zero_weight_share:.0%}, "
        "grad norm {grad_norm:.3f}, lr {learning_rate:.2e}, {tokens_per_second:,.0f} tokens/s, MFU "
    ).format(**row)
    line += "absent" if row["mfu"] is None else f"{row['mfu']:.3f}"
    line += f", {row['peak_memory_bytes'] / 2**30:.1f} GiB"
    line += f", fp8 overlap {row['fp8_overlap']:.4f}" if "fp8_overlap" in row else ""
    return line + ("" if row["eta_seconds"] is None else f", about {row['eta_seconds']:.0f} s left")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics.jsonl, one a step."""
    rows = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:  # half-written
            break
    return rows


class StepReports:
    """All reports of a run, opened in its first process.

    After `done_steps` of an earlier attempt metrics.jsonl is cut back to them and the trackers are written anew from it, so
    that no step appears twice (their wall times are then those of the new attempt).
    """

    def __init__(
        self, out_dir: Path, report_to: Sequence[str], steps: int, progress: Progress, done_steps: int = 0
    ) -> None:
        self.steps, self.progress = steps, progress
        self.step_seconds: list[float] = []
        self.path = out_dir / "metrics.jsonl"
        rows = [row for row in read_metrics(self.path) if row["step"] <= done_steps]
        replace_file(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        self.trackers = [_tracker(name, out_dir) for name in report_to]
        for tracker in self.trackers:
            tracker.start()
        for row in rows:
            self._send(row)

    def add(self, row: dict[str, Any]) -> None:
        """Report a step, with the time that is left after it."""
        self.step_seconds.append(row["seconds"])
        row["eta_seconds"] = eta_seconds(self.step_seconds, self.steps - row["step"])
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._send(row)
        self.progress(row["step"], self.steps, f"steps: {describe(row)}")

    def _send(self, row: dict[str, Any]) -> None:
        numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
        for tracker in self.trackers:
            tracker.log(numbers, step=row["step"])

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.finish()


def _tracker(name: str, out_dir: Path) -> Any:
    """accelerate's tracker of a name: TensorBoard in `out_dir`, of the others a run of the artifact's name and group."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    if name == "tensorboard":
        shutil.rmtree(out_dir / name, ignore_errors=True)
        return LOGGER_TYPE_TO_CLASS[name](name, out_dir)
    run = out_dir.name.removeprefix(".").removesuffix(".partial")
    place = {"dir": str(out_dir)} if name == "wandb" else {}
    return LOGGER_TYPE_TO_CLASS[name]("tokenweight", name=run, group=run, **place)
