"""The distribution of the PMI from what an evaluation stored of it: shares, moments, quantiles, density (Figure 3).

Two kinds of tokens are kept apart: those of a chunk's first window, whose short context is all there is, and those with
far context. In the former the PMI says nothing of far context: it is 0 where the model itself is the scorer.
"""

import json
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tokenweight.pipeline.measures import Pmi, PmiTokens
from tokenweight.reports.estimates import Estimate
from tokenweight.reports.samples import Floats, UnitResult
from tokenweight.reports.statistics import bootstrap_means

PERCENT = 100.0
PARTS: dict[PmiTokens, tuple[str, ...]] = {"far": ("far_context",), "all": ("first_window", "far_context")}


@dataclass(frozen=True)
class Distribution:
    """`bins`: low and high (nats; the outer ones are open), and counts of the two kinds of tokens, first_window and far_context.

    `documents`: a line for each, with counts and sums of either kind, such as far_context.tokens, far_context.zero.ppmi.
    """

    bins: pd.DataFrame
    documents: pd.DataFrame
    shift_k: float

    def per_document(self, name: str, tokens: PmiTokens) -> Floats:
        """A count or sum of each document: tokens, sum, squares, near_zero, zero.ppmi, ..."""
        return self.documents[[f"{part}.{name}" for part in PARTS[tokens]]].sum(axis=1).to_numpy(np.float64)

    def total(self, name: str, tokens: PmiTokens) -> float:
        return float(self.per_document(name, tokens).sum())

    def histogram(self, tokens: PmiTokens) -> npt.NDArray[np.int64]:
        return self.bins[list(PARTS[tokens])].sum(axis=1).to_numpy()

    @property
    def centres(self) -> Floats:
        """Middle of each bin; of the open ones the end that they have."""
        ends = self.bins[["low", "high"]].replace([-np.inf, np.inf], np.nan)
        return ends.bfill(axis=1).ffill(axis=1).mean(axis=1).to_numpy()


def read_distribution(unit: UnitResult) -> Distribution:
    """The distribution that a complete PMI unit holds."""
    chunks = pd.read_parquet(unit.directory / "rows.parquet", columns=["output"])["output"]
    return Distribution(
        bins=pd.read_parquet(unit.directory / "histogram.parquet"),
        documents=pd.json_normalize([json.loads(chunk) for chunk in chunks]).groupby("document").sum(),
        shift_k=float(unit.record["config"]["evaluation"][unit.entry.benchmark]["shift_k"]),
    )


def pmi_estimate(measure: Pmi, unit: UnitResult, label: str) -> Estimate:
    """A statistic of one unit's distribution; n is the number of tokens."""
    known = Estimate("complete", addresses=(unit.entry.address,))
    distribution = read_distribution(unit)
    far, whole = (int(distribution.total("tokens", tokens)) for tokens in ("far", "all"))
    n = far if measure.tokens == "far" else whole
    if not n:
        return known.without_value(label, "no document is long enough for a far context", "missing")
    value, draws = statistic(measure, distribution)
    remark = (
        f"{label}: {PERCENT * far / whole:.1f} % of {whole} tokens have a far context, the others are in the first window "
        "of what the model read at once."
    )
    documents = int(np.count_nonzero(distribution.per_document("tokens", measure.tokens)))
    return Estimate("complete", value, draws, documents - 1, n, n, remarks=(remark,), addresses=known.addresses)


def statistic(measure: Pmi, distribution: Distribution) -> tuple[float, Floats | None]:
    """A cell's value, and its draws with documents resampled; None for quantiles and where there is one document."""
    if measure.statistic == "quantile":
        return quantile(distribution, measure.quantile, measure.tokens), None
    names = {"mean": "sum", "near_zero": "near_zero", "positive": "zero.ppmi", "zero": f"zero.{measure.variant}"}
    tokens = distribution.per_document("tokens", measure.tokens)
    counted = distribution.per_document(names[measure.statistic], measure.tokens)
    if measure.statistic == "positive":
        counted = tokens - counted
    scale = 1.0 if measure.statistic == "mean" else PERCENT
    counted, tokens = counted[tokens > 0], tokens[tokens > 0]  # a document too short for far context says nothing
    value = scale * float(counted.sum() / tokens.sum())
    if len(tokens) < 2:
        return value, None
    drawn, drawn_tokens = bootstrap_means(f"{measure.benchmark}/documents", np.stack([counted, tokens]))
    return value, scale * drawn / drawn_tokens


def quantile(distribution: Distribution, share: float, tokens: PmiTokens) -> float:
    """The PMI below which a share of the tokens lies, to the width of a bin."""
    cumulated = np.cumsum(distribution.histogram(tokens))
    return float(distribution.centres[np.searchsorted(cumulated, share * cumulated[-1])])


def scott_bandwidth(distribution: Distribution, tokens: PmiTokens) -> float:
    """Scott's rule, as scipy.stats.gaussian_kde takes it: standard deviation times n^(-1/5), in nats; a bin at least."""
    n, total, squares = (distribution.total(name, tokens) for name in ("tokens", "sum", "squares"))
    variance = max(0.0, squares - total**2 / n) / max(1.0, n - 1)
    return max(math.sqrt(variance) * math.pow(n, -0.2), float(np.diff(distribution.bins["low"]).min()))


def density(distribution: Distribution, grid: Floats, bandwidth: float, tokens: PmiTokens) -> Floats:
    """Gaussian kernel density estimate at `grid` (nats), per nat: a kernel on each bin, by its tokens."""
    counts, centres = distribution.histogram(tokens), distribution.centres
    used = counts > 0
    kernels = np.exp(-0.5 * ((grid[:, None] - centres[used]) / bandwidth) ** 2)
    values: Floats = kernels @ counts[used] / (counts.sum() * bandwidth * math.sqrt(2 * math.pi))
    return values


def scores(variant: str, pmi: Floats, shift_k: float) -> Floats:
    """Score of tokens by their PMI, as training gives it (Section 5.3)."""
    shift = math.log(shift_k)
    return {
        "abs_pmi": np.abs(pmi),
        "ppmi": np.maximum(pmi, 0),
        "npmi": np.maximum(-pmi, 0),
        "sppmi": np.maximum(pmi - shift, 0),
        "snpmi": np.maximum(-pmi - shift, 0),
    }[variant]


def selected(distribution: Distribution, variant: str, kappa: float) -> list[tuple[float, float]]:
    """Ranges of PMI that sparse weighting selects by their score: the kappa share of all tokens with the highest ones.

    Where fewer have a score above 0, these are they; training draws the rest at random among the others.
    """
    counts = distribution.histogram("all")
    score = scores(variant, distribution.centres, distribution.shift_k)
    order = np.argsort(-score, kind="stable")
    within = np.cumsum(counts[order]) <= kappa * counts.sum()
    chosen = np.zeros(len(counts), bool)
    chosen[order] = within & (score[order] > 0)
    return ranges(distribution, chosen)


def ranges(distribution: Distribution, chosen: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """(low, high) of each run of neighbouring chosen bins, in nats; an open bin's end is infinite."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    low, high = distribution.bins["low"], distribution.bins["high"]
    return [(float(low[a]), float(high[b - 1])) for a, b in zip(ends[::2], ends[1::2], strict=True)]
