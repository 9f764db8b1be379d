"""How uncertain a mean over seeds and samples is: one variance for interval and test; correlations; many comparisons."""

import hashlib
import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from tokenweight.reports.samples import Floats

Key = TypeVar("Key", bound=Hashable)
DRAWS = 1000
_BLOCK = 50_000  # random numbers made at once: they stay in the processor's cache
_TIE = 1e-9  # relative: values that differ by rounding alone are equal


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


def correlation(kind: Any, points: pd.DataFrame) -> float | None:
    """Pearson's or Spearman's of two columns; None for a constant side or fewer than two points."""
    found = float(points.corr(kind).to_numpy()[0, 1])
    return None if math.isnan(found) else found


class Uncertain(NamedTuple):
    """A mean over seeds with its standard error and the degrees of freedom of its t."""

    mean: float
    error: float
    df: float

    @property
    def is_exact(self) -> bool:
        """Whether nothing varies, neither over samples nor over seeds: then nothing can be said of its error."""
        return self.error <= _TIE * abs(self.mean)

    def interval_95(self) -> tuple[float, float]:
        from scipy.special import stdtrit  # takes longer to import than a table of one seed takes to compute

        half = float(stdtrit(self.df, 0.975)) * self.error
        return self.mean - half, self.mean + half

    def p_zero(self) -> float:
        """Two-sided p that the mean is 0: below 0.05 exactly where the interval leaves 0 out."""
        return 2 * self._beyond(abs(self.mean))

    def p_apart(self, margin: float) -> float:
        """p that the mean is at least `margin` from 0: two one-sided tests (Schuirmann, J. Pharmacokinet. Biopharm. 1987)."""
        return self._beyond(margin - abs(self.mean))

    def _beyond(self, distance: float) -> float:
        from scipy.special import stdtr

        return float(stdtr(self.df, -distance / self.error))


def over_seeds_and_samples(values: Floats, draws: Floats, sample_df: int) -> Uncertain:
    """The mean of `values` [seeds], of which `draws` [seeds, DRAWS] are bootstrap means over the same resampled items.

    Items are crossed with seeds: two-way random effects. The variance of the mean is that over seeds and that over items
    less that of single scores, which is in both, and at least the larger of the two; degrees of freedom are
    Satterthwaite's (Biometrics 1946), at least seeds - 1. One seed: over items alone, with `sample_df`, items less tasks.
    """
    seeds, of_items = len(values), float(np.var(draws.mean(axis=0), ddof=1))
    if seeds == 1:
        return Uncertain(float(values[0]), math.sqrt(of_items), max(1, sample_df))
    of_seeds = float(np.var(values, ddof=1)) / seeds
    of_both = max(0.0, (float(np.var(draws, axis=1, ddof=1).mean()) - of_items) / (seeds - 1))
    variance = max(of_seeds + of_items - of_both, of_seeds, of_items)
    items = max(1, sample_df)
    parts = of_seeds**2 / (seeds - 1) + of_items**2 / items + of_both**2 / (items * (seeds - 1))
    df = max(seeds - 1, variance**2 / parts) if parts else seeds - 1
    return Uncertain(float(np.mean(values)), math.sqrt(variance), df)


def holm(p_values: Mapping[Key, float | None]) -> dict[Key, float]:
    """Holm's step-down correction of those that are there: the family-wise error rate holds whatever their dependence."""
    known = {key: p for key, p in p_values.items() if p is not None}
    ordered = pd.Series(list(known.values()), dtype=np.float64).sort_values(kind="stable")
    stepped = (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1.0)
    return dict(zip(known, stepped.sort_index().tolist(), strict=True))
