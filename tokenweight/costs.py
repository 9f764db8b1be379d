"""What recipes cost at the paper's scale: GPU-hours of the paper, and GPU-hours from our own measurements.

Training and frozen scoring only: neither the paper nor our benchmarks time the evaluation.

- The paper's: hours on 8 A100-80GB (Appendix B, Runtime Analysis), 8 GPU-hours each. The paper scores all of PG-19
  once per scorer. Llama-3.1 8B counts as Llama-3 8B, and another corpus as PG-19.
- Ours: the sequences of 32,768 tokens that training reads, times the measured GPU-seconds for one on an H200; without
  loading, saving and reading.

A scorer that neither measured (Llama-3.2 3B) is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tokenweight.recipes.ablations import LLAMA31_8B, LLAMA32_1B, PHI2_ID
from tokenweight.recipes.paper import LLAMA3_8B
from tokenweight.recipes.schema import HubBase, Recipe

LLAMA3_8B_ID: str = LLAMA3_8B["base.repo_id"].value
PAPER_GPUS = 8

How = Literal["uniform", "frozen", "unfrozen dense", "unfrozen sparse"]

# Appendix B, Runtime Analysis: hours on 8 A100-80GB.
PAPER_TRAINING_HOURS: dict[str, dict[How, float]] = {
    LLAMA3_8B_ID: {"uniform": 30.0, "frozen": 30.0, "unfrozen dense": 38.0, "unfrozen sparse": 38.0},
    PHI2_ID: {"uniform": 15.0, "frozen": 15.0, "unfrozen dense": 17.0, "unfrozen sparse": 17.0},
}
PAPER_SCORING_HOURS = {LLAMA3_8B_ID: 17.0, LLAMA31_8B: 17.0, LLAMA32_1B: 9.3, PHI2_ID: 7.5}

# GPU-seconds for one sequence, from benchmarks/results: Llama-3 8B of h200x2-llama3-8b-zero3-fused.json (two H200,
# ZeRO-3, 4 sequences a step); Phi-2 of h200-phi-2.json (one H200, from 4 and 8 layers).
OUR_TRAINING_SECONDS: dict[str, dict[How, float]] = {
    LLAMA3_8B_ID: {"uniform": 5.165, "frozen": 5.022, "unfrozen dense": 6.105, "unfrozen sparse": 5.950},
    PHI2_ID: {"uniform": 3.247, "frozen": 3.204, "unfrozen dense": 3.661, "unfrozen sparse": 3.612},
}
# "scoring alone" of h200-llama3-8b-fused.json and h200-phi-2.json (one H200, from 4 and 8 layers).
OUR_SCORING_SECONDS = {LLAMA3_8B_ID: 1.209, LLAMA31_8B: 1.209, LLAMA32_1B: 0.266, PHI2_ID: 0.520}

ASSUMPTIONS = (
    "GPU-hours are those of scale paper, for training and frozen scoring; evaluation is timed nowhere and left out.",
    "Paper: A100-80GB, 8 times the hours of Appendix B; all of PG-19 is scored once per scorer; Llama-3.1 8B counts as "
    "Llama-3 8B, FineWeb as PG-19.",
    "Ours: H200, measured seconds of a step (benchmarks/results) for the sequences that training reads; Phi-2 and "
    "scoring are extrapolated from 4 and 8 layers.",
)


@dataclass(frozen=True)
class Hours:
    """GPU-hours of some recipes, each trained once, each corpus scored once by each scorer."""

    paper: float  # on A100-80GB
    ours: float  # on H200
    left_out: tuple[str, ...] = ()  # scorers that nobody timed


def gpu_hours(recipes: Iterable[Recipe], seeds: int = 1) -> Hours:
    """GPU-hours of the recipes at scale `paper`, each with so many seeds; a recipe that is named twice counts once.

    The paper's scoring is of all of PG-19, whatever a seed draws from it; ours is of the sequences of each seed.

    Raises:
        KeyError: a recipe trains a model other than the paper's two.
    """
    paper_hours, our_seconds, left_out = 0.0, 0.0, set[str]()
    scored: dict[tuple[str, str], int] = {}
    for recipe in {recipe.name: recipe for recipe in recipes}.values():
        if recipe.training is None:
            continue
        base, sequences = _id(recipe), recipe.training.steps * recipe.training.sequences_per_step
        paper_hours += seeds * PAPER_TRAINING_HOURS[base][_how(recipe)]
        our_seconds += OUR_TRAINING_SECONDS[base][_how(recipe)] * sequences
        if recipe.scorer and recipe.scorer.kind == "frozen":
            model = recipe.scorer.model
            scorer = model.repo_id if isinstance(model, HubBase) else base
            scored[scorer, str(recipe.corpus)] = sequences
    for (scorer, _), sequences in scored.items():
        if scorer not in PAPER_SCORING_HOURS:
            left_out.add(scorer)
            continue
        paper_hours += PAPER_SCORING_HOURS[scorer]
        our_seconds += OUR_SCORING_SECONDS[scorer] * sequences
    return Hours(PAPER_GPUS * paper_hours, seeds * our_seconds / 3600, tuple(sorted(left_out)))


def _id(recipe: Recipe) -> str:
    return recipe.base.repo_id if isinstance(recipe.base, HubBase) else recipe.base.kind


def _how(recipe: Recipe) -> How:
    if recipe.scorer is None:
        return "uniform"
    if recipe.scorer.kind == "frozen":
        return "frozen"
    return "unfrozen sparse" if recipe.weighting.postprocessing == "sparse" else "unfrozen dense"
