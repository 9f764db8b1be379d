"""Cells in the making: the value of each row and seed in a column, the samples behind it, means and differences."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from tokenweight.pipeline.manifest import Run
from tokenweight.reports.model import Status
from tokenweight.reports.samples import Floats
from tokenweight.reports.statistics import DRAWS, bootstrap_means

_SEVERITY: tuple[Status, ...] = ("complete", "partial", "missing", "refused")

Key = TypeVar("Key", bound=Hashable)  # what a column has a value for: a row with a seed, then a row


@dataclass(frozen=True)
class Reason:
    """Why there is no value: in which row, and what is wrong."""

    row: str  # its label; "" where it concerns the whole column
    text: str


@dataclass(frozen=True)
class Estimate:
    status: Status
    value: float | None = None
    draws: Floats | None = None  # of the bootstrap; None where a task has a single sample: no interval then
    df: int = 0  # items less tasks: what the draws' variance rests on
    n: int = 0
    n_expected: int | None = None
    reasons: tuple[Reason, ...] = ()  # why there is no value
    remarks: tuple[str, ...] = ()  # what to know about the column's value, whichever row
    addresses: tuple[str, ...] = ()
    spread: float | None = None  # over seeds
    chance: float = 0.0  # what guessing gives

    def without_value(self, row: str, why: str, status: Status = "refused", **changes: Any) -> "Estimate":
        return replace(self, status=status, value=None, draws=None, reasons=(Reason(row, why),), **changes)


@dataclass(frozen=True)
class Measured(Generic[Key]):
    """One column. Its value in a row is the weighted sum of its tasks' mean scores (of a perplexity, exp of it).

    `scores`: a line for each item, labelled by its task, which seeds the resampling of its items; a column for each row
    that has a value of scores; NaN where it has not this item.
    """

    cells: Mapping[Key, Estimate]
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def of(self) -> dict[Key, Floats]:
        """Scores of each row: [items]."""
        return dict(zip(list[Any](self.scores.columns), self.scores.to_numpy(np.float64).T, strict=True))

    def same_samples(self, one: Key, other: Key) -> bool:
        """Whether both rest on the same samples of the same tasks, so that they can be compared in pairs."""
        return one in self.of and other in self.of and np.array_equal(np.isnan(self.of[one]), np.isnan(self.of[other]))

    def less(self, one: Key, other: Key) -> Estimate:
        """The difference of two cells on the same resampled items; rows with equal scores differ by exactly nothing."""
        cell = self.cells[one]
        difference = combined((cell, self.cells[other]), (1.0, -1.0), (cell,))
        is_known = difference.draws is not None and self.same_samples(one, other)
        if is_known and np.array_equal(self.of[one], self.of[other], equal_nan=True):
            return replace(difference, draws=np.zeros(DRAWS))
        return difference


def combined(parts: Sequence[Estimate], weights: Sequence[float] | Floats, counted: Sequence[Estimate]) -> Estimate:
    """A weighted sum of cells, incomplete where any of them is, for the same reasons; n is that of `counted`."""
    expected = [part.n_expected for part in counted]
    whole = Estimate(
        max((part.status for part in parts), key=_SEVERITY.index),
        df=sum(part.df for part in counted),
        n=sum(part.n for part in counted),
        n_expected=None if None in expected else sum(n or 0 for n in expected),
        reasons=tuple(dict.fromkeys(reason for part in parts for reason in part.reasons)),
        remarks=tuple(dict.fromkeys(remark for part in parts for remark in part.remarks)),
        addresses=tuple(dict.fromkeys(address for part in parts for address in part.addresses)),
    )
    values = [part.value for part in parts if part.value is not None]
    draws = [part.draws for part in parts if part.draws is not None]
    if whole.status != "complete" or len(values) < len(parts):
        return whole
    return replace(
        whole,
        value=float(np.array(weights) @ np.array(values)),
        draws=np.array(weights) @ np.stack(draws) if len(draws) == len(parts) else None,
    )


def means_and_draws(scores: pd.DataFrame, weights: pd.DataFrame) -> tuple[dict[Any, float], dict[Any, Floats]]:
    """Each row's mean over its tasks of each task's mean score, and draws of its value, the weighted sum.

    All rows resample the same items, task by task. A row of which a task has one sample has no draws.
    """
    several = ~(scores.groupby(level=0, sort=False).count() == 1).any().to_numpy()
    means = np.full((scores.shape[1], scores.index.nunique()), np.nan)
    draws = np.zeros((scores.shape[1], DRAWS))
    for number, (task, block) in enumerate(scores.groupby(level=0, sort=False)):
        values = block.to_numpy().T
        counts = (~np.isnan(values)).sum(axis=1)
        for n in set(counts) - {0}:
            rows = np.flatnonzero(counts == n)
            of_rows = values[rows]
            held = of_rows[~np.isnan(of_rows)].reshape(-1, n)
            means[rows, number] = held.mean(axis=1)
            if (drawn := several[rows]).any():
                weight = weights.to_numpy()[number, rows[drawn]]
                draws[rows[drawn]] += weight[:, None] * bootstrap_means(str(task), held[drawn])
    of_runs = {run: float(np.mean(found[~np.isnan(found)])) for run, found in zip(scores.columns, means, strict=True)}
    return of_runs, {run: draws[row] for row, run in enumerate(scores.columns) if several[row]}


def mean_of_columns(columns: Sequence[Measured[Key]]) -> Measured[Key]:
    """Plain mean of other cells of the row. Where columns share samples, the mean has no scores of its own."""
    count = len(columns)
    cells = {}
    for key in columns[0].cells:
        parts = [column.cells[key] for column in columns]
        cells[key] = combined(parts, np.full(count, 1 / count), parts)
    tasks = [task for column in columns for task in column.scores.index.unique()]
    shares_samples = len(set(tasks)) < len(tasks)
    return Measured(cells) if shares_samples else Measured(cells, pd.concat([c.scores for c in columns], join="inner"))


def mean_of_seeds(column: Measured[Run]) -> Measured[str]:
    """One cell from the same cell with each seed: their mean, and how far they spread (standard deviation).

    All seeds are measured on the same items, so n stays that of one (of an incomplete one where there is one); the
    interval is that of the mean over seeds, on resampled items. A model that does not depend on the seed counts once.
    """
    cells, scores = {}, {}
    for row in dict.fromkeys(row for row, _ in column.cells):
        runs = list({cell.addresses or run: run for run, cell in column.cells.items() if run[0] == row}.values())
        seeds = [column.cells[run] for run in runs]
        cells[row] = seeds[0]
        if len(seeds) > 1:
            mean = combined(seeds, np.full(len(seeds), 1 / len(seeds)), seeds)
            worst = max(seeds, key=lambda seed: _SEVERITY.index(seed.status))  # the first one that is not complete
            values = [seed.value for seed in seeds if seed.value is not None]
            spread = None if mean.value is None else float(np.std(values, ddof=1))
            of_one = {name: getattr(worst, name) for name in ("df", "n", "n_expected", "chance")}
            cells[row] = replace(mean, spread=spread, **of_one)
        if all(column.same_samples(run, runs[0]) for run in runs):
            scores[row] = np.mean([column.of[run] for run in runs], axis=0)
    return Measured(cells, pd.DataFrame(scores, index=column.scores.index))
