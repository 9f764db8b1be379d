"""What intervals and tests promise, by simulation: how often they hold on data whose truth is known."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tokenweight.reports.statistics import Uncertain, bootstrap_means, holm, over_seeds_and_samples

_SPEC = importlib.util.spec_from_file_location(
    "simulation", Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
simulation = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(simulation)

REPEATS = 1000
RANDOM_ERROR = 0.021  # three standard errors of a share of 0.05 in 1000


@pytest.mark.parametrize("metric", simulation.METRICS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_three_seeds_hold_level_and_coverage_wherever_the_variance_comes_from(metric: str, share: float) -> None:
    level, coverage = simulation.measure(metric, 3, share, 500)
    assert level <= 0.05 + 1.5 * RANDOM_ERROR
    assert 0.95 - 1.5 * RANDOM_ERROR <= coverage <= 0.999


def test_one_seed_says_nothing_of_other_runs() -> None:
    alone, _ = simulation.measure("skewed", 1, 0.9, 300)
    assert alone > 0.2
    level, _ = simulation.measure("skewed", 1, 0.0, 300)
    assert level <= 0.05 + 2 * RANDOM_ERROR


def coverage(tasks: int, samples: int, kind: str) -> float:
    """Share of repeats whose 95 % interval of a mean over tasks holds the true mean."""
    random = np.random.default_rng(tasks * 1000 + samples)
    draws = np.zeros((REPEATS, 1000))
    means, truth = np.zeros(REPEATS), 0.0
    for task in range(tasks):
        solved = 0.2 + 0.6 * (task + 0.5) / tasks
        if kind == "accuracy":
            scores = (random.random((REPEATS, samples)) < solved).astype(float)
        else:  # an F1 score: many zeros, else anything
            solved, scores = (
                solved / 2,
                random.random((REPEATS, samples)) * (random.random((REPEATS, samples)) < solved),
            )
        draws += bootstrap_means(f"task {task}", scores) / tasks
        truth += solved / tasks
        means += scores.mean(axis=1) / tasks
    found = (
        over_seeds_and_samples(np.array([m]), d[None], tasks * (samples - 1)) for m, d in zip(means, draws, strict=True)
    )
    ends = np.array([one.interval_95() for one in found])
    return float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "samples", "kind", "least"),
    [
        (1, 1000, "accuracy", 0.93),  # MMLU with a limit
        (13, 50, "accuracy", 0.93),  # RULER
        (16, 200, "f1", 0.93),  # LongBench
        (3, 150, "f1", 0.93),  # a category
        (13, 2, "accuracy", 0.87),  # smoke; resampling n of n samples would give far less
        (16, 4, "f1", 0.91),
        (1, 50, "f1", 0.91),  # a single task of few skewed samples: below what it says
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(tasks: int, samples: int, kind: str, least: float) -> None:
    held = coverage(tasks, samples, kind)
    print(f"coverage of {tasks} tasks of {samples} {kind} samples: {held:.3f}")
    assert least <= held <= 0.98


@pytest.mark.slow
def test_holm_keeps_the_share_of_tables_with_a_false_finding() -> None:
    random = np.random.default_rng(1)
    shared = random.normal(size=(300, 1))  # what all cells of a table have in common
    cells = (shared + random.normal(size=(300, 11))) / np.sqrt(2)
    found = [
        min(holm({n: Uncertain(z, 1.0, 1e6).p_zero() for n, z in enumerate(row)}).values()) < 0.05 for row in cells
    ]
    assert np.mean(found) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
