"""The distribution of the PMI from what an evaluation stored of it: shares, moments, quantiles, density (Figure 3).

Two kinds of tokens are kept apart: those of a chunk's first window, whose short context is all there is, and those with
far context. In the former the PMI says nothing of far context: it is 0 where the model itself is the scorer.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from tokenweight.pipeline.measures import Pmi, PmiTokens
from tokenweight.reports.statistics import bootstrap_means
from tokenweight.reports.units import Floats, UnitResult

PERCENT = 100.0
PARTS: dict[PmiTokens, tuple[str, ...]] = {"far": ("far_context",), "all": ("first_window", "far_context")}
VARIANTS = ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi")
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Distribution:
    """Histogram (`low`, `high` nats of each bin, the outer ones open; counts by kind of token) and counts by document.

    `documents`: for each document and kind of token the summed counts and moments of its chunks.
    """

    low: Floats
    high: Floats
    counts: dict[str, Counts]  # first_window, far_context
    documents: list[dict[str, dict[str, float]]]
    shift_k: float

    def per_document(self, name: str, tokens: PmiTokens) -> Floats:
        """A count or sum of each document: tokens, sum, squares, near_zero, zero-ppmi, ..."""
        return np.array([sum(document[part][name] for part in PARTS[tokens]) for document in self.documents])

    def total(self, name: str, tokens: PmiTokens) -> float:
        """A count or sum over all documents."""
        return float(self.per_document(name, tokens).sum())

    def histogram(self, tokens: PmiTokens) -> Counts:
        """Tokens in each bin."""
        counts: Counts = np.sum([self.counts[part] for part in PARTS[tokens]], axis=0)
        return counts

    @property
    def centres(self) -> Floats:
        """Middle of each bin; of the open ones the end that they have."""
        low = np.where(np.isinf(self.low), self.high, self.low)
        high = np.where(np.isinf(self.high), self.low, self.high)
        middle: Floats = (low + high) / 2
        return middle


def read_distribution(unit: UnitResult) -> Distribution:
    """The distribution that a complete PMI unit holds; raises OSError, ValueError, KeyError where a file is broken."""
    table = pq.ParquetFile(unit.directory / "histogram.parquet").read(use_threads=False)
    told = pq.ParquetFile(unit.directory / "rows.parquet").read(columns=["output"], use_threads=False)["output"]
    documents: dict[int, dict[str, dict[str, float]]] = {}
    for chunk in map(json.loads, told.to_pylist()):
        document = documents.setdefault(chunk["document"], {part: {} for part in PARTS["all"]})
        for part in PARTS["all"]:
            for name, value in _flat(chunk[part]).items():
                document[part][name] = document[part].get(name, 0.0) + value
    return Distribution(
        low=table["low"].to_numpy(),
        high=table["high"].to_numpy(),
        counts={part: table[part].to_numpy() for part in PARTS["all"]},
        documents=[documents[number] for number in sorted(documents)],
        shift_k=float(unit.record["config"]["evaluation"]["pmi"]["shift_k"]),
    )


def _flat(tally: dict[str, Any]) -> dict[str, float]:
    sums = {name: float(tally[name]) for name in ("tokens", "sum", "squares", "near_zero")}
    return sums | {f"zero-{name}": float(count) for name, count in tally["zero"].items()}


def statistic(measure: Pmi, distribution: Distribution) -> tuple[float, Floats | None]:
    """A cell's value, and its draws with documents resampled; None for quantiles and where there is one document."""
    if measure.statistic == "quantile":
        return quantile(distribution, measure.quantile, measure.tokens), None
    tokens = distribution.per_document("tokens", measure.tokens)
    counted, scale = _counted(measure, distribution)
    counted, tokens = counted[tokens > 0], tokens[tokens > 0]  # a document too short for far context says nothing
    value = scale * float(counted.sum() / tokens.sum())
    if len(tokens) < 2:
        return value, None
    drawn, drawn_tokens = bootstrap_means("pmi/documents", np.stack([counted, tokens]))
    return value, scale * drawn / drawn_tokens


def _counted(measure: Pmi, distribution: Distribution) -> tuple[Floats, float]:
    """What is summed over documents and divided by the tokens, and the scale of the ratio."""
    if measure.statistic == "mean":
        return distribution.per_document("sum", measure.tokens), 1.0
    if measure.statistic == "positive":
        tokens, zero = (distribution.per_document(name, measure.tokens) for name in ("tokens", "zero-ppmi"))
        return tokens - zero, PERCENT
    name = "near_zero" if measure.statistic == "near_zero" else f"zero-{measure.variant}"
    return distribution.per_document(name, measure.tokens), PERCENT


def quantile(distribution: Distribution, share: float, tokens: PmiTokens) -> float:
    """The PMI below which a share of the tokens lies, to the width of a bin."""
    cumulated = np.cumsum(distribution.histogram(tokens))
    return float(distribution.centres[np.searchsorted(cumulated, share * cumulated[-1])])


def scott_bandwidth(distribution: Distribution, tokens: PmiTokens) -> float:
    """Scott's rule, as scipy.stats.gaussian_kde takes it: standard deviation times n^(-1/5), in nats."""
    n, total, squares = (distribution.total(name, tokens) for name in ("tokens", "sum", "squares"))
    return math.sqrt((squares - total**2 / n) / (n - 1)) * math.pow(n, -0.2)


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
    return [
        (float(distribution.low[a]), float(distribution.high[b - 1]))
        for a, b in zip(ends[::2], ends[1::2], strict=True)
    ]
