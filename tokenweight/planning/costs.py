"""What recipes cost at the paper's scale: GPU-hours of the paper, and GPU-hours by our model of H200s.

Training and frozen scoring only: neither the paper nor our benchmarks time the paper's evaluation.

- The paper's: hours on 8 A100-80GB (Appendix B, Runtime Analysis), 8 GPU-hours each. The paper scores all of PG-19
  once per scorer. Llama-3.1 8B counts as Llama-3 8B, and another corpus as PG-19. A scorer that the paper does not time
  (Llama-3.2 3B) is left out and named.
- Ours: tokenweight.planning.cost_model, for the sequences that training reads; without loading, saving and reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tokenweight.model_configs import LLAMA3_8B_ID, parameters, published_config
from tokenweight.planning.cost_model import gpu_hours as model_hours
from tokenweight.planning.cost_model import scoring_flops, training_flops
from tokenweight.recipes import load
from tokenweight.recipes.ablations import LLAMA31_8B, LLAMA32_1B, PHI2_ID
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.schema import HubBase, Recipe, Weighting

PAPER_GPUS = 8
PG19_SEQUENCES, LONG_TOKENS = 70_000, 32_768  # Section 4, Datasets

How = Literal["uniform", "frozen", "unfrozen dense", "unfrozen sparse"]

# Appendix B, Runtime Analysis: hours on 8 A100-80GB.
PAPER_TRAINING_HOURS: dict[str, dict[How, float]] = {
    LLAMA3_8B_ID: {"uniform": 30.0, "frozen": 30.0, "unfrozen dense": 38.0, "unfrozen sparse": 38.0},
    PHI2_ID: {"uniform": 15.0, "frozen": 15.0, "unfrozen dense": 17.0, "unfrozen sparse": 17.0},
}
PAPER_SCORING_HOURS = {LLAMA3_8B_ID: 17.0, LLAMA31_8B: 17.0, LLAMA32_1B: 9.3, PHI2_ID: 7.5}

ASSUMPTIONS = (
    "GPU-hours are those of scale paper, for training and frozen scoring; evaluation is timed nowhere and left out.",
    "Paper: A100-80GB, 8 times the hours of Appendix B; all of PG-19 is scored once per scorer; Llama-3.1 8B counts as "
    "Llama-3 8B, FineWeb as PG-19.",
    "Ours: H200, by a model fitted to benchmarks/results (docs/plan.md), for the sequences that training reads.",
)


@dataclass(frozen=True)
class Hours:
    """GPU-hours of some recipes, each trained once, each corpus scored once by each scorer."""

    paper: float  # on A100-80GB
    ours: float  # on H200
    left_out: tuple[str, ...] = ()  # scorers that the paper did not time


def gpu_hours(recipes: Iterable[Recipe], seeds: int = 1) -> Hours:
    """GPU-hours of the recipes at scale `paper`, each with so many seeds; a recipe that is named twice counts once.

    The paper's scoring is of all of PG-19, whatever a seed draws from it; ours is of the sequences of each seed.

    Raises:
        KeyError: a recipe trains a model other than the paper's two.
    """
    paper_hours, our_hours, left_out = 0.0, 0.0, set[str]()
    scored: dict[tuple[str, str], tuple[Recipe, int]] = {}
    for recipe in {recipe.name: recipe for recipe in recipes}.values():
        if recipe.training is None:
            continue
        base, sequences = _id(recipe), recipe.training.steps * recipe.training.sequences_per_step
        paper_hours += seeds * PAPER_TRAINING_HOURS[base][_how(recipe)]
        our_hours += sequences * _our_training(recipe, base)
        if recipe.scorer and recipe.scorer.kind == "frozen":
            model = recipe.scorer.model
            scorer = model.repo_id if isinstance(model, HubBase) else base
            scored[scorer, str(recipe.corpus)] = recipe, sequences
    for (scorer, _), (recipe, sequences) in scored.items():
        our_hours += sequences * _our_scoring(recipe, scorer)
        if scorer in PAPER_SCORING_HOURS:
            paper_hours += PAPER_SCORING_HOURS[scorer]
        else:
            left_out.add(scorer)
    return Hours(PAPER_GPUS * paper_hours, seeds * our_hours, tuple(sorted(left_out)))


def against_the_paper() -> dict[str, tuple[float, float]]:
    """Hours on 8 A100: what -> (the paper's, Appendix B; by our model, all activations but layers' inputs recomputed)."""
    found = {}
    for label, base, row in (
        ("Llama-3 8B", LLAMA3_8B_ID, "table-3/unfrozen-dense"),
        ("Phi-2", PHI2_ID, "table-7/unfrozen-dense"),
        ("Llama-3.2 1B", LLAMA32_1B, "table-3/unfrozen-dense"),
    ):
        config, scorer = published_config(base), load(row, "paper").recipe.scorer
        if scorer is None:
            raise ValueError(f"{row} has no scorer")
        passes = {"uniform": None, "unfrozen": scorer} if base in PAPER_TRAINING_HOURS else {}
        for what, own in passes.items():
            flops = training_flops(config, LONG_TOKENS, Weighting(), own, "full")
            printed = PAPER_TRAINING_HOURS[base]["unfrozen dense" if own else "uniform"]
            found[f"{label} {what}"] = printed, _a100_hours(base, flops[1] if flops else 0.0, 240 * 128)
        scored = scoring_flops(config, LONG_TOKENS, scorer) or 0.0
        found[f"{label} scoring PG-19"] = PAPER_SCORING_HOURS[base], _a100_hours(base, scored, PG19_SEQUENCES)
    return found


def _a100_hours(base: str, flops: float, sequences: int) -> float:
    config = published_config(base)
    return model_hours(flops * sequences, config, parameters(config) or 0)["A100"] / PAPER_GPUS


def _our_training(recipe: Recipe, base: str) -> float:
    """GPU-hours of one sequence on an H200."""
    config, checkpointing = published_config(base), default_execution("paper").checkpointing
    flops = training_flops(config, recipe.context_tokens, recipe.weighting, recipe.scorer, checkpointing)
    return model_hours(flops[1], config, parameters(config) or 0)["H200"] if flops else 0.0


def _our_scoring(recipe: Recipe, scorer: str) -> float:
    config = published_config(scorer)
    flops = scoring_flops(config, recipe.context_tokens, recipe.scorer) if recipe.scorer else None
    return model_hours(flops, config, parameters(config) or 0)["H200"] if flops else 0.0


def _id(recipe: Recipe) -> str:
    return recipe.base.repo_id if isinstance(recipe.base, HubBase) else recipe.base.kind


def _how(recipe: Recipe) -> How:
    if recipe.scorer is None:
        return "uniform"
    if recipe.scorer.kind == "frozen":
        return "frozen"
    return "unfrozen sparse" if recipe.weighting.postprocessing == "sparse" else "unfrozen dense"
