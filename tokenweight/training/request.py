"""What one training run is given: everything that changes its result."""

from __future__ import annotations

from pathlib import Path

from tokenweight.recipes.schema import Frozen, Parity, Scorer, Training, Weighting


class TrainRequest(Frozen):
    """Continued pre-training of `model_dir` on the sequences of `chunk_dir`, weighted as `weighting` says."""

    model_dir: Path
    chunk_dir: Path
    score_dir: Path | None = None  # frozen scorer only
    training: Training
    weighting: Weighting = Weighting()
    scorer: Scorer | None = None
    seed: int = 0
    parity: Parity = "paper"
    repeat_rows: bool = False  # pre-training may read the corpus more than once; continued pre-training may not

    @property
    def rows(self) -> int:
        """Sequences that the run reads."""
        return self.training.steps * self.training.sequences_per_step

    @property
    def needs_short_nll(self) -> bool:
        """Whether weights compare two contexts at all (uniform, focal and MiLe do not)."""
        return self.weighting.needs_short_nll
