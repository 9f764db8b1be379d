"""Bootstrap intervals, and correlations of columns."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tokenweight.reports.units import Floats

DRAWS = 1000
_CHUNK_DRAWS = 100


def bootstrap_means(key: str, scores: Floats) -> Floats:
    """Means of `DRAWS` resamples of the samples, with replacement: float64 [DRAWS].

    The draws depend on `key` and n alone, so that rows resample the same items: two equal models have
    a difference of exactly 0 in every draw. `scores` are in the order of their doc_id.
    """
    return (_shares(key, len(scores)) @ scores.astype(np.float32)).astype(np.float64)


@lru_cache(maxsize=96)
def _shares(key: str, n: int) -> npt.NDArray[np.float32]:
    """How often each item was drawn, divided by n: float32 [DRAWS, n]."""
    seed = int.from_bytes(hashlib.sha256(f"{key}|{n}".encode()).digest()[:8], "big")
    random = np.random.default_rng(seed)
    shares = np.empty((DRAWS, n), dtype=np.float32)
    for start in range(0, DRAWS, _CHUNK_DRAWS):
        drawn = random.integers(0, n, size=(_CHUNK_DRAWS, n), dtype=np.int32)
        drawn += np.arange(_CHUNK_DRAWS, dtype=np.int32)[:, None] * n
        counts = np.bincount(drawn.ravel(), minlength=_CHUNK_DRAWS * n)
        shares[start : start + _CHUNK_DRAWS] = counts.reshape(_CHUNK_DRAWS, n) / n
    return shares


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
