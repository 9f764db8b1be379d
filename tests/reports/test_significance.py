"""One variance for interval and test: by hand, against scipy, and against the two-way analysis of variance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tokenweight.reports.statistics import DRAWS, Uncertain, bootstrap_means, holm, over_seeds_and_samples

RANDOM = np.random.default_rng(4)


def test_an_interval_leaves_0_out_exactly_where_p_is_below_5_percent() -> None:
    for mean, error, df in zip(RANDOM.normal(0, 2, 200), RANDOM.random(200), RANDOM.integers(1, 40, 200), strict=True):
        found = Uncertain(float(mean), float(error), float(df))
        low, high = found.interval_95()
        assert (low > 0 or high < 0) == (found.p_zero() < 0.05)
        assert found.p_zero() == pytest.approx(2 * stats.t.sf(abs(mean) / error, df))


def test_alike_is_two_one_sided_tests() -> None:
    found = Uncertain(0.2, 0.1, 9)
    above, below = stats.t.sf((0.2 + 0.5) / 0.1, 9), stats.t.cdf((0.2 - 0.5) / 0.1, 9)
    assert found.p_apart(0.5) == pytest.approx(max(above, below))
    assert found.p_apart(0.1) > 0.5  # it is farther apart already
    assert Uncertain(-0.2, 0.1, 9).p_apart(0.5) == found.p_apart(0.5)


def test_one_seed_is_a_t_test_over_samples() -> None:
    differences = RANDOM.normal(0.3, 1, 60)
    draws = bootstrap_means("task", differences[None])
    found = over_seeds_and_samples(np.array([differences.mean()]), draws, 59)
    assert (found.mean, found.df) == (pytest.approx(differences.mean()), 59)
    assert found.error == pytest.approx(stats.sem(differences), rel=0.08)  # as far as 1000 draws tell
    assert found.p_zero() == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.3)


@pytest.mark.parametrize(("of_seeds", "of_items"), [(0.0, 1.0), (1.0, 0.0), (0.5, 1.0)])
def test_several_seeds_are_two_way_random_effects(of_seeds: float, of_items: float) -> None:
    """Against the mean squares of seeds, items and both (Satterthwaite)."""
    seeds, items = 4, 80
    scores = (
        RANDOM.normal(0, of_seeds, (seeds, 1))
        + RANDOM.normal(0, of_items, items)
        + RANDOM.normal(0, 0.7, (seeds, items))
    )
    found = over_seeds_and_samples(scores.mean(axis=1), bootstrap_means("task", scores), items - 1)
    rest = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    of_s = items * np.var(scores.mean(1), ddof=1)
    of_i = seeds * np.var(scores.mean(0), ddof=1)
    of_both = (rest**2).sum() / ((seeds - 1) * (items - 1))
    total = max(of_s + of_i - of_both, of_s, of_i)
    assert found.error == pytest.approx(np.sqrt(total / (seeds * items)), rel=0.08)
    df = total**2 / (of_s**2 / (seeds - 1) + of_i**2 / (items - 1) + of_both**2 / ((seeds - 1) * (items - 1)))
    assert found.df == pytest.approx(max(seeds - 1, df), rel=0.25)


def test_what_does_not_vary_is_known_to_be_exact() -> None:
    same = np.full((3, DRAWS), 0.1)
    assert over_seeds_and_samples(np.full(3, 0.1), same, 9).is_exact
    assert not over_seeds_and_samples(np.array([0.1, 0.2, 0.1]), same, 9).is_exact


def test_holm_by_hand() -> None:
    assert holm(dict(zip("abcde", [0.01, 0.04, None, 0.03, 0.005], strict=True))) == pytest.approx(
        {"a": 0.03, "b": 0.06, "d": 0.06, "e": 0.02}
    )
    assert holm({1: 0.6, 2: 0.5}) == {1: 1.0, 2: 1.0}
    assert holm({}) == {}
