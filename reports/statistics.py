"""Bootstrap intervals, and correlations of columns."""

from __future__ import annotations

import hashlib

import numpy as np

from tokenweight.reports.units import Floats

DRAWS = 1000
_BLOCK = 50_000  # random numbers made at once: they stay in the processor's cache


def bootstrap_means(key: str, scores: Floats) -> Floats:
    """Means of `DRAWS` resamples of n samples: `scores` [rows, n], n at least 2, gives float64 [rows, DRAWS].

    A resample has n - 1 samples, drawn with replacement: with n the variance of the mean would come out too small by
    (n - 1) / n, which a mean over many tasks of few samples does not forgive (Rao and Wu, JASA 1988, on strata).
    The draws depend on `key` and n alone, so that rows resample the same items. Scores are in the order of their doc_id.
    """
    rows, n = scores.shape
    random = np.random.default_rng(_seed(key, n))
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


def _seed(key: str, n: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{key}|{n}".encode()).digest()[:8], "big")


def interval_95(draws: Floats) -> tuple[float, float]:
    """Percentile interval: the 2.5 % and 97.5 % quantiles of the draws."""
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def pearson(x: Floats, y: Floats) -> float | None:
    """Pearson's correlation; None where a side is constant or there are fewer than two points."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def spearman(x: Floats, y: Floats) -> float | None:
    """Spearman's correlation: Pearson's of the ranks, ties sharing their mean rank."""
    return pearson(_ranks(x), _ranks(y))


def _ranks(values: Floats) -> Floats:
    ranks: Floats = np.array([np.mean(np.flatnonzero(np.sort(values) == value)) for value in values])
    return ranks
