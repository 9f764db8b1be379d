"""Paired tests by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tokenweight.reports.statistics import holm, mcnemar_exact, sign_flips, t_over_seeds


def scores(only_first: int, only_second: int, both: int) -> tuple[np.ndarray, np.ndarray]:
    first = [1.0] * only_first + [0.0] * only_second + [1.0] * both
    second = [0.0] * only_first + [1.0] * only_second + [1.0] * both
    return np.array(first), np.array(second)


def test_mcnemar_by_hand() -> None:
    # 5 against 1 of 6 items that differ: 2 * (C(6,0) + C(6,1)) / 2^6
    assert mcnemar_exact(*scores(5, 1, 20)) == pytest.approx(14 / 64)
    assert mcnemar_exact(*scores(3, 3, 0)) == 1.0
    assert mcnemar_exact(*scores(0, 0, 9)) == 1.0


@pytest.mark.parametrize(("won", "lost"), [(0, 1), (4, 0), (7, 9), (30, 12), (700, 610)])
def test_mcnemar_is_scipys_binomial_test(won: int, lost: int) -> None:
    assert mcnemar_exact(*scores(won, lost, 5)) == pytest.approx(stats.binomtest(won, won + lost).pvalue)
    assert mcnemar_exact(*scores(lost, won, 5)) == pytest.approx(stats.binomtest(won, won + lost).pvalue)


def test_sign_flips_by_hand() -> None:
    assert sign_flips(np.array([1.0, 2.0, 0.0, 3.0])) == 2 / 8  # +++ and ---, an item without a difference says nothing
    assert sign_flips(np.array([1.0, -2.0, 3.0])) == 6 / 8  # as far as 2: all but the two with sum 0
    assert sign_flips(np.array([1.0, -1.0])) == 1.0
    assert sign_flips(np.zeros(40)) == 1.0
    assert sign_flips(np.array([0.1, 0.2, 0.3, -0.6])) == 1.0  # its sum is 0 up to rounding


def test_few_items_are_scipys_exact_permutation_test() -> None:
    contributions = np.random.default_rng(3).normal(0.4, 1, 12)
    exact = stats.permutation_test((contributions,), np.sum, permutation_type="samples", n_resamples=2**12)
    assert sign_flips(contributions) == pytest.approx(exact.pvalue)


@pytest.mark.parametrize("n", [30, 130])  # random signs, and the normal distribution
def test_more_items_agree_with_scipys_random_permutations(n: int) -> None:
    noise = np.random.default_rng(5).normal(0, 1, n)
    contributions = noise - noise.mean() + 1.5 / np.sqrt(n)
    drawn = stats.permutation_test((contributions,), np.sum, permutation_type="samples", n_resamples=3000, rng=1)
    assert sign_flips(contributions) == pytest.approx(drawn.pvalue, abs=0.03)


def test_p_is_never_zero_and_the_same_each_time() -> None:
    clear = np.full(60, 1.0)
    assert sign_flips(clear) == pytest.approx(1 / 10_001)
    assert 0 < sign_flips(np.full(1000, 1.0)) < 1e-100
    mixed = np.random.default_rng(0).normal(0.1, 1, 50)
    assert sign_flips(mixed) == sign_flips(mixed) == sign_flips(-mixed)


def test_t_over_seeds_is_scipys() -> None:
    differences = [0.3, 0.1, 0.4]
    assert t_over_seeds(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert t_over_seeds([0.0, 0.0, 0.0]) == 1.0
    assert t_over_seeds([0.2, 0.2, 0.2]) == 0.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []
