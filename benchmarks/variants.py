"""The weightings that steps of the project's own trainer are timed with, by the names of the tables."""

from __future__ import annotations

from typing import Any

from training_cost import DENSE, FROZEN_SPARSE, SPARSE, UNIFORM

from tokenweight.fp8 import Fp8Scoring
from tokenweight.recipes.schema import Weighting
from tokenweight.training.trainer import TokenWeightingTrainer

FP8 = "unfrozen dense, fp8 scoring"
READY = "frozen, scores ready"
WEIGHTINGS: dict[str, Weighting] = {
    "uniform": UNIFORM,
    "unfrozen dense": DENSE,
    FP8: DENSE,
    "unfrozen sparse 0.2": SPARSE,
    READY: FROZEN_SPARSE,
}


def train_with(trainer: TokenWeightingTrainer, name: str) -> None:
    """From the next step on. Of READY the rows have the scores; fp8 scores are not held against others: weights are random."""
    stage: Any = trainer.stage
    scorer = stage.scorer.model_copy(update={"kind": "frozen" if name == READY else "unfrozen"})
    trainer.stage = stage = stage.model_copy(update={"weighting": WEIGHTINGS[name], "scorer": scorer})
    trainer.fp8 = None
    if name == FP8:
        trainer.fp8 = Fp8Scoring(
            stage.weighting, stage.training.precision, stage.seed, trainer.choose, trainer.args.device
        )
        trainer.fp8.measuring = False
