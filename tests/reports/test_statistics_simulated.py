"""What intervals and tests promise, by simulation: how often they hold on data whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from tokenweight.reports.statistics import bootstrap_means, holm, mcnemar_exact, sign_flips, t_over_seeds

pytestmark = pytest.mark.slow

REPEATS = 1000
RANDOM_ERROR = 0.021  # three standard errors of a share of 0.05 in 1000


def coverage(tasks: int, samples: int, kind: str) -> float:
    """Share of repeats whose 95 % interval of a mean over tasks holds the true mean."""
    random = np.random.default_rng(tasks * 1000 + samples)
    draws = np.zeros((REPEATS, 1000))
    truth = 0.0
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
    low, high = np.quantile(draws, (0.025, 0.975), axis=1)
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize(
    ("tasks", "samples", "kind", "least"),
    [
        (1, 1000, "accuracy", 0.93),  # MMLU with a limit
        (13, 50, "accuracy", 0.93),  # RULER
        (16, 200, "f1", 0.93),  # LongBench
        (3, 150, "f1", 0.93),  # a category
        (13, 2, "accuracy", 0.87),  # smoke; resampling n of n samples would give 0.76
        (16, 4, "f1", 0.91),
        (1, 50, "f1", 0.91),  # a single task of few skewed samples: below what it says
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(tasks: int, samples: int, kind: str, least: float) -> None:
    held = coverage(tasks, samples, kind)
    print(f"coverage of {tasks} tasks of {samples} {kind} samples: {held:.3f}")
    assert least <= held <= 0.97


@pytest.mark.parametrize("samples", [8, 60, 400])  # all signs, random signs, normal
def test_sign_flips_hold_their_level(samples: int) -> None:
    random = np.random.default_rng(samples)
    p = np.array([sign_flips(random.standard_t(3, samples) * (random.random(samples) < 0.5)) for _ in range(REPEATS)])
    print(f"{samples} samples: {np.mean(p < 0.05):.3f} of p below 0.05")
    assert np.mean(p < 0.05) <= 0.05 + RANDOM_ERROR
    assert np.mean(p < 0.05) >= (0.05 - RANDOM_ERROR if samples > 8 else 0)
    moved = np.array([sign_flips(random.normal(0.5, 1, samples)) for _ in range(200)])
    assert np.mean(moved < 0.05) > (0.9 if samples > 8 else 0.1)


def test_mcnemar_holds_its_level_and_finds_what_is_there() -> None:
    random = np.random.default_rng(0)
    hard = random.random((REPEATS, 500))
    first, second = ((hard + random.normal(0, 0.2, hard.shape) < 0.5).astype(float) for _ in range(2))
    p = np.array([mcnemar_exact(a, b) for a, b in zip(first, second, strict=True)])
    print(f"McNemar: {np.mean(p < 0.05):.3f} of p below 0.05")
    assert 0.02 <= np.mean(p < 0.05) <= 0.05 + RANDOM_ERROR
    better = (hard + random.normal(-0.06, 0.2, hard.shape) < 0.5).astype(float)
    assert np.mean([mcnemar_exact(a, b) < 0.05 for a, b in zip(better, second, strict=True)]) > 0.7


def test_holm_keeps_the_share_of_tables_with_a_false_finding() -> None:
    random = np.random.default_rng(1)
    shared = random.normal(size=(REPEATS, 1, 200))
    found = [
        min(holm([sign_flips(cell + row) for cell in random.normal(size=(11, 200))])) < 0.05 for row in shared[:300, 0]
    ]
    assert np.mean(found) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_over_seeds_a_difference_of_single_runs_is_no_finding() -> None:
    """No true difference, but runs that differ by their seed: samples alone would find one far too often."""
    random = np.random.default_rng(2)
    alone, both = [], []
    for _ in range(REPEATS):
        effects = random.normal(0, 0.3, 3)  # of each seed's difference, shared by all samples
        differences = effects[:, None] + random.normal(0, 1, (3, 200))
        p = sign_flips(differences.mean(axis=0))
        alone.append(p < 0.05)
        both.append(max(p, t_over_seeds(differences.mean(axis=1).tolist())) < 0.05)
    print(f"over seeds: samples alone {np.mean(alone):.3f}, with the t-test {np.mean(both):.3f}")
    assert np.mean(alone) > 0.2
    assert np.mean(both) <= 0.05 + RANDOM_ERROR
