"""Each cell's interval, and against its baseline the difference with a test on the same samples, from one variance.

So are the paper's findings judged: claims about the order of two rows, tested, and counted over the seeds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenweight.pipeline.experiment import Column, Experiment
from tokenweight.pipeline.manifest import Run
from tokenweight.pipeline.measures import ColumnMean, Perplexity, SampleMean, TaskMean
from tokenweight.reports.estimates import Estimate, Measured, mean_of_seeds
from tokenweight.reports.measuring import is_filled
from tokenweight.reports.model import CellDifference, FindingResult, Inference
from tokenweight.reports.statistics import Key, holm, over_seeds_and_samples

PMI_SHARES = ("positive", "near_zero", "zero")  # of the PMI's statistics
Comparison = tuple[str, str, str]  # row, its baseline's row, column


@dataclass(frozen=True)
class Results:
    """What an experiment gives: each column by its key, with each seed and on average over them."""

    experiment: Experiment
    runs: Mapping[str, Measured[Run]]
    seeds: list[int]

    @cached_property
    def means(self) -> dict[str, Measured[str]]:
        return {key: mean_of_seeds(column) for key, column in self.runs.items()}

    @cached_property
    def labels(self) -> dict[str, str]:
        return {row.key: row.name for row in self.experiment.rows}

    def by_seed(self, row: str, column: str) -> list[Estimate]:
        return [self.runs[column].cells[row, seed] for seed in self.seeds]

    @staticmethod
    def is_share(column: Column) -> bool:
        """Whether it shows shares of 0 to 1 in percent, of which 0 is the floor."""
        return isinstance(column.measure, SampleMean | TaskMean | ColumnMean)

    @cached_property
    def at_floor(self) -> set[str]:
        """Columns that cannot be measured here: of the rows, most of them with a value, none is above chance (of choices) or zero.

        So is a mean of columns most of which are. They are neither tested nor judged, and nothing in them stands out.
        """
        found = set[str]()
        for column in sorted(self.experiment.columns, key=lambda column: isinstance(column.measure, ColumnMean)):
            measure, is_at_floor = column.measure, False
            if isinstance(measure, ColumnMean):
                is_at_floor = 2 * len(found.intersection(measure.columns)) > len(measure.columns)
            elif self.is_share(column):
                rows = [row.key for row in self.experiment.rows if is_filled(row, column)]
                cells = [self.means[column.key].cells[row] for row in rows]
                lows = (infer(self, row, column.key).ci_low for row in rows)
                least = [cell.value if low is None else low for low, cell in zip(lows, cells, strict=True)]
                known = [low for low in least if low is not None]
                is_at_floor = 2 * len(known) > len(rows) and max(known) <= max(cell.chance for cell in cells)
            found |= {column.key} if is_at_floor else set()
        return found


def infer(
    results: Results, row: str, column: str, baseline: str | None = None, margin: float | None = None
) -> Inference:
    """The interval of a cell's value, or with a baseline that of their difference and its p: the one place for both.

    From one variance (:func:`over_seeds_and_samples`), so that they cannot contradict; seeds whose artifacts are the same
    count once. `margin`: p is that the two are farther apart than this. No interval and no test where nothing varies
    although values differ, or a task has one sample.
    """
    runs, means = results.runs[column], results.means[column]
    shown = next(one for one in results.experiment.columns if one.key == column)
    if baseline is not None and not means.same_samples(row, baseline):
        return Inference(reason="not tested: it rests on other samples than the baseline")
    found = {}
    for seed in results.seeds:
        sides = [runs.cells[key, seed] for key in (row, baseline) if key is not None]
        estimate = sides[0] if baseline is None else runs.less((row, seed), (baseline, seed))
        found[tuple(side.addresses for side in sides)] = estimate
    values = np.array([one.value for one in found.values() if one.value is not None])
    draws = [one.draws for one in found.values() if one.draws is not None]
    n = 0 if baseline is None else means.cells[row].n
    if len(values) < len(found):
        return Inference(n=n)
    if len(draws) < len(found):
        return Inference(n=n, reason="not tested: a task has a single sample")
    of_log = baseline is None and isinstance(shown.measure, Perplexity)  # which is far from normal with few texts
    scale = np.log if of_log else np.asarray
    mean = over_seeds_and_samples(scale(values), scale(draws), means.cells[row].df)
    at_floor = baseline is not None and column in results.at_floor
    unmeasured = "not tested: at chance or at the floor in every row, it cannot be measured here" if at_floor else None
    if mean.is_exact:
        if baseline is None or mean.mean:
            return Inference(n=n, reason="not tested: every sample and seed has the same difference")
        if unmeasured:
            return Inference(ci_low=0.0, ci_high=0.0, n=n, reason=unmeasured)
        return Inference(ci_low=0.0, ci_high=0.0, p=1.0 if margin is None else 0.0, test="equal scores", n=n)
    low, high = mean.interval_95()
    if baseline is None:
        is_share = results.is_share(shown) or getattr(shown.measure, "statistic", "") in PMI_SHARES
        low, high = (math.exp(low), math.exp(high)) if of_log else (low, high)
        low, high = (max(low, 0.0), min(high, 100.0)) if is_share else (low, high)
        return Inference(ci_low=low, ci_high=high)
    if unmeasured:
        return Inference(ci_low=low, ci_high=high, n=n, reason=unmeasured)
    p = mean.p_zero() if margin is None else mean.p_apart(margin)
    test = "t over seeds and samples" if len(values) > 1 else "t over samples"
    return Inference(ci_low=low, ci_high=high, p=p, test=test, n=n)


def compare(results: Results, pairs: Mapping[Key, Comparison]) -> dict[Key, CellDifference]:
    """Differences of all cells that have a value in both rows; p-values are corrected over all tests of the table."""
    found = {}
    for key, (row, baseline, column) in pairs.items():
        value = results.means[column].less(row, baseline).value
        if value is not None:
            tested, label = infer(results, row, column, baseline), results.labels[baseline]
            found[key] = CellDifference(baseline=baseline, baseline_label=label, value=value, **dict(tested))
    corrected = holm({key: difference.p for key, difference in found.items()})
    return {key: one.model_copy(update={"p_corrected": corrected.get(key)}) for key, one in found.items()}


def judge(results: Results) -> tuple[FindingResult, ...]:
    """Compare the two rows of each finding, over the seeds and with each; where a seed lacks a value there is no verdict.

    p-values are corrected over all findings of the experiment; that rows are alike is tested as well.
    """
    by_name = {column.paper or column.key: column for column in results.experiment.columns}
    # A length may have been left out.
    findings = [finding for finding in results.experiment.findings if finding.column in by_name]
    tested = {f: infer(results, f.higher, by_name[f.column].key, f.lower, f.within) for f in findings}
    corrected = holm({finding: test.p for finding, test in tested.items()})
    judged = []
    for finding in findings:
        column, test, within = by_name[finding.column], tested[finding], finding.within
        sides = (results.by_seed(row, column.key) for row in (finding.higher, finding.lower))
        pairs = ((higher.value, lower.value) for higher, lower in zip(*sides, strict=True))
        differences = [higher - lower for higher, lower in pairs if higher is not None and lower is not None]
        holding = sum(difference > 0 if within is None else abs(difference) < within for difference in differences)
        higher, lower = results.labels[finding.higher], results.labels[finding.lower]
        relation = ">" if within is None else f"≈ (within {within:g})"
        judged.append(
            FindingResult(
                claim=finding.claim,
                place=finding.place,
                compared=f"{column.name}: {higher} {relation} {lower}",
                difference=float(np.mean(differences)) if len(differences) == len(results.seeds) else None,
                **dict(test) | {"p_corrected": corrected.get(finding)},
                is_measurable=column.key not in results.at_floor,
                decimals=column.decimals,
                seeds_holding=holding,
                seeds=len(differences),
            )
        )
    return tuple(judged)
