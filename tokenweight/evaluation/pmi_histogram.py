"""What is kept of the PMI of many tokens: a fine histogram of fixed size in a file, and counts for each chunk.

From the histogram come quantiles and a kernel density estimate (Figure 3), from the counts exact shares and moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.evaluation.rows import Row
from tokenweight.files import replace_file
from tokenweight.recipes.schema import ScoreName

HISTOGRAM_NAME = "histogram.parquet"
BINS_PER_NAT = 256
LIMIT_NATS = 16  # a PMI beyond +-16 is counted in the first or the last bin, which have no outer end
EDGES: NDArray[np.float64] = np.arange(-LIMIT_NATS * BINS_PER_NAT, LIMIT_NATS * BINS_PER_NAT + 1) / BINS_PER_NAT
NEAR_ZERO_NATS = 0.05
VARIANTS: tuple[ScoreName, ...] = ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi")  # Section 5.3
_CHUNKS = b"chunks"

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ChunkValues:
    """NLL of a chunk's predictions by the long and by the short context, both float32 [M], in nats.

    The first `first_window` predictions had the same tokens before them in either pass: no far context. PMI =
    short - long.
    """

    long_nll: Floats
    short_nll: Floats
    first_window: int

    @property
    def pmi(self) -> Floats:
        """log p_long - log p_short of each prediction, float32 [M]."""
        values: Floats = self.short_nll - self.long_nll
        return values


@dataclass
class Histogram:
    """Counts [2, bins]: of tokens of first windows and of tokens with far context; bins as :data:`EDGES` says.

    Bin 0 lies below the first edge, bin i from edge i - 1 up to but not including edge i, the last from the last edge.
    `chunks`: how many chunks it counts.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, len(EDGES) + 1), np.int64))
    chunks: int = 0

    def add(self, values: ChunkValues) -> None:
        """Count one more chunk."""
        bins = np.searchsorted(EDGES, values.pmi.astype(np.float64), side="right")
        for kind, part in enumerate((bins[: values.first_window], bins[values.first_window :])):
            self.counts[kind] += np.bincount(part, minlength=len(EDGES) + 1)
        self.chunks += 1

    def write(self, out_dir: Path) -> None:
        """Write `histogram.parquet` (low, high, first_window, far_context) whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {
            "low": np.concatenate([[-math.inf], EDGES]),
            "high": np.concatenate([EDGES, [math.inf]]),
            "first_window": self.counts[0],
            "far_context": self.counts[1],
        }
        table = pa.table(columns).replace_schema_metadata({_CHUNKS: str(self.chunks).encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        replace_file(out_dir / HISTOGRAM_NAME, sink.getvalue().to_pybytes())

    @staticmethod
    def read(out_dir: Path) -> Histogram:
        """What `write` wrote; an empty histogram where there is none that can be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(out_dir / HISTOGRAM_NAME)
            chunks = int(table.schema.metadata[_CHUNKS])
            counts = np.stack([table[name].to_numpy() for name in ("first_window", "far_context")])
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return Histogram()
        return Histogram(counts, chunks) if counts.shape == (2, len(EDGES) + 1) else Histogram()


def resume(out_dir: Path, rows: dict[int, Row]) -> Histogram:
    """The histogram that an interrupted run left; removes the rows of chunks that it does not count."""
    histogram = Histogram.read(out_dir)
    if not set(range(histogram.chunks)) <= set(rows):
        histogram = Histogram()
    for index in [index for index in rows if index >= histogram.chunks]:
        del rows[index]
    return histogram


def tally(values: ChunkValues, shift_k: float) -> dict[str, dict[str, Any]]:
    """Counts and moments of a chunk, of its first window and of its tokens with far context.

    tokens; sum, squares (of the PMI) and its min and max; near_zero: |PMI| < 0.05; zero: tokens whose score is 0, by
    score function (Section 5.3, shift ln `shift_k`).
    """
    import torch

    from tokenweight.weighting.scores import token_scores

    parts = {"first_window": slice(0, values.first_window), "far_context": slice(values.first_window, None)}
    found = {}
    for name, part in parts.items():
        exact = values.pmi[part].astype(np.float64)
        nlls = torch.from_numpy(values.long_nll[part]), torch.from_numpy(values.short_nll[part])
        found[name] = {
            "tokens": len(exact),
            "sum": float(exact.sum()),
            "squares": float((exact**2).sum()),
            "min": float(exact.min()) if len(exact) else None,
            "max": float(exact.max()) if len(exact) else None,
            "near_zero": int((np.abs(exact) < NEAR_ZERO_NATS).sum()),
            "zero": {kind: int((token_scores(kind, *nlls, shift_k=shift_k) == 0).sum()) for kind in VARIANTS},
        }
    return found
