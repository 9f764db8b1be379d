"""The stages `train` and `score` as tests call them: inputs by their directories alone."""

from pathlib import Path
from typing import Any

from tokenweight.progress import Progress
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.schema import Execution, Scorer
from tokenweight.training import run, scoring
from tokenweight.training.stages import Score, Train

TIMING_FIELDS = ("seconds", "tokens_per_second", "mfu", "peak_memory_bytes", "eta_seconds")  # differ from run to run


class Repeating(Train):
    """A training that may read its corpus more than once."""

    repeats = True


class TrainRequest(Frozen):
    """A training, where its inputs lie, and whether it may read them more than once."""

    stage: Train
    model_dir: Path
    chunk_dir: Path
    score_dir: Path | None = None
    repeat_rows: bool = False

    @property
    def inputs(self) -> dict[str, Path]:
        found = {"model": self.model_dir, "chunks": self.chunk_dir, "scores": self.score_dir}
        return {role: path for role, path in found.items() if path is not None}


def train(request: TrainRequest, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    stage = Repeating.model_construct(**dict(request.stage)) if request.repeat_rows else request.stage
    return run.train(stage, request.inputs, out_dir, execution, progress)


def score(
    model_dir: Path,
    chunk_dir: Path,
    out_dir: Path,
    *,
    scorer: Scorer,
    execution: Execution,
    progress: Progress,
    tokenizer_dir: Path | None = None,
    precision: str = "fp32",
    **fields: Any,
) -> dict[str, Any]:
    stage = Score(short_tokens=scorer.short_tokens, stride_tokens=scorer.stride_tokens, precision=precision, **fields)
    inputs = {
        "model": model_dir,
        "chunks": chunk_dir,
        "tokenizer": tokenizer_dir or model_dir,
    }
    return scoring.score(stage, inputs, out_dir, execution, progress)
