"""Bootstrap intervals, correlations of columns, paired tests on the same items and their correction for many comparisons.

Tests are two-sided throughout. Sign flips are preferred to a bootstrap test: under the null hypothesis they hold their
level at any number of items (Noreen 1989; Yeh, COLING 2000; Dror et al., ACL 2018, recommend them for measures without a
known distribution).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tokenweight.reports.samples import Floats

DRAWS = 1000
_BLOCK = 50_000  # random numbers made at once: they stay in the processor's cache
FLIPS = 10_000
_EXACT_ITEMS = 13  # 2 ** 13 assignments of signs are fewer than FLIPS
_NORMAL_ITEMS = 100.0  # effective number of items from which the sum of flips is taken for normal
_TIE = 1e-9  # relative: sums that differ by rounding alone are equal


def bootstrap_means(key: str, scores: Floats) -> Floats:
    """Means of `DRAWS` resamples of n samples: `scores` [rows, n], n at least 2, gives float64 [rows, DRAWS].

    A resample has n - 1 samples, drawn with replacement: with n the variance of the mean would come out too small by
    (n - 1) / n, which a mean over many tasks of few samples does not forgive (Rao and Wu, JASA 1988, on strata).
    The draws depend on `key` and n alone, so that rows resample the same items. Scores are in the order of their doc_id.
    """
    rows, n = scores.shape
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{key}|{n}".encode()).digest()[:8], "big"))
    items = np.ascontiguousarray(scores.T)
    sums: Floats = np.empty((DRAWS, rows))
    step = max(1, _BLOCK // n)
    for start in range(0, DRAWS, step):
        block = sums[start : start + step]
        first = n * np.arange(len(block))[:, None]  # of each resample's own counters
        drawn = random.integers(0, n, size=(len(block), n - 1)) + first
        counts = np.bincount(drawn.ravel(), minlength=len(block) * n).reshape(len(block), n)
        # Multiplied while in the cache: all counts at once would be 56 MB for MMLU, and slower by half.
        np.matmul(counts.astype(np.float64), items, out=block)
    means: Floats = sums.T / (n - 1)
    return means


def interval_95(draws: Floats | None) -> tuple[float, float] | tuple[None, None]:
    """Percentile interval: the 2.5 % and 97.5 % quantiles of the draws, where there are any."""
    if draws is None:
        return None, None
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def correlation(kind: str, x: Floats, y: Floats) -> float | None:
    """Pearson's, or Spearman's (of the ranks, ties sharing their mean rank); None for a constant side or fewer than two points."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    if kind == "spearman":
        x, y = (np.array(pd.Series(side).rank(), np.float64) for side in (x, y))
    return float(np.corrcoef(x, y)[0, 1])


def mcnemar_exact(first: Floats, second: Floats) -> float:
    """McNemar's exact test of two rows of 0/1 scores [n]: binomial, on the items that only one of them solves."""
    from scipy.special import bdtr  # takes longer to import than a table of one seed takes to compute

    only_first, only_second = int(np.sum(first > second)), int(np.sum(second > first))
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), only_first + only_second, 0.5)))


def sign_flips(contributions: Floats) -> float:
    """Randomization test of a sum: how often random signs bring it as far from 0 as it is.

    `contributions` [items]: each item's share of the difference, its weight included. All assignments of signs are
    tried where there are few items. Where many count, the sum is normal with variance sum(c^2): there this overstates
    p a little, as random signs have lighter tails. Between, `FLIPS` random assignments, and p is at least
    1 / (FLIPS + 1) (Phipson and Smyth 2010).
    """
    moved = np.abs(contributions[contributions != 0])
    if not len(moved):
        return 1.0
    observed = max(0.0, abs(float(contributions.sum())) - _TIE * float(moved.sum()))
    squares = moved**2
    if len(moved) <= _EXACT_ITEMS:
        signs = (np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1
        return float(np.mean(np.abs((2 * signs - 1) @ moved) >= observed))
    if squares.sum() ** 2 >= _NORMAL_ITEMS * np.sum(squares**2):
        return math.erfc(observed / math.sqrt(2 * float(squares.sum())))
    signs = np.random.default_rng(len(moved)).integers(0, 2, size=(FLIPS, len(moved)), dtype=np.int8)
    sums = np.abs((2 * signs - 1).astype(np.float64) @ moved)
    return (1 + int(np.sum(sums >= observed))) / (1 + FLIPS)


def t_over_seeds(differences: Sequence[float]) -> float:
    """Student's t-test that the mean over seeds is 0; where all seeds agree exactly, 1 for 0 and else 0."""
    from scipy.special import stdtr  # as above

    count, mean = len(differences), float(np.mean(differences))
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    if error <= _TIE * abs(mean):
        return float(mean == 0)
    return 2 * float(stdtr(count - 1, -abs(mean) / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the family-wise error rate holds whatever the dependence of the tests."""
    ordered = pd.Series(p_values, dtype=np.float64).sort_values(kind="stable")
    stepped = (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1.0)
    return stepped.sort_index().tolist()
