"""Each cell's interval, and against its baseline the difference with a paired test on the same samples.

So are the paper's findings judged: claims about the order of two rows, tested, and counted over the seeds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from tokenweight.pipeline.experiment import Experiment
from tokenweight.pipeline.manifest import Run
from tokenweight.reports.estimates import Estimate, Measured, mean_of_seeds
from tokenweight.reports.model import CellDifference, FindingResult
from tokenweight.reports.statistics import holm, interval_95, mcnemar_exact, sign_flips, t_over_seeds

Key = TypeVar("Key", bound=Hashable)
Comparison = tuple[str, str, str]  # row, its baseline's row, column


@dataclass(frozen=True)
class Results:
    """What an experiment gives: each column by its key, with each seed and on average over them."""

    experiment: Experiment
    runs: Mapping[str, Measured[Run]]
    seeds: list[int]

    @cached_property
    def means(self) -> dict[str, Measured[str]]:
        """By row: means over the seeds."""
        return {key: mean_of_seeds(column) for key, column in self.runs.items()}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Both labels of each row."""
        return {row.key: row.name for row in self.experiment.rows}

    def by_seed(self, row: str, column: str) -> list[Estimate]:
        """A cell with each seed."""
        return [self.runs[column].cells[row, seed] for seed in self.seeds]


class Inference(NamedTuple):
    """What samples and seeds say of a value, or of a difference, beyond themselves."""

    ci_low: float | None = None  # of the 95 % interval
    ci_high: float | None = None
    p: float | None = None  # two-sided, that there is no difference
    test: str | None = None
    n: int = 0  # pairs of samples
    reason: str | None = None  # why there is no test


def infer(results: Results, row: str, column: str, baseline: str | None = None) -> Inference:
    """The interval of a cell's value, or with a baseline that of their difference and its p: the one place for both.

    No interval where it would have no width although values differ: all samples of each task have one score, or one
    difference. Seeds average each sample's score first, which says whether these models differ on other samples. That p
    is not taken alone: the difference must show over the seeds too (t-test of the differences of each seed), and the
    larger p counts (an intersection-union test: Berger, Technometrics 1982).
    """
    measured = results.means[column]
    if baseline is None:
        is_constant = row in measured.of and not measured.moves(row)
        return Inference(*interval_95(None if is_constant else measured.cells[row].draws))
    if not measured.same_samples(row, baseline):
        return Inference(reason="not tested: it rests on other samples than the baseline")
    held = ~np.isnan(measured.of[row])
    first, second = measured.of[row][held], measured.of[baseline][held]
    if np.isin([first, second], (0, 1)).all() and measured.scores.index[held].nunique() == 1:
        test, p = "McNemar", mcnemar_exact(first, second)
    else:
        test, p = "sign flips", sign_flips((measured.shares[row] - measured.shares[baseline])[held])
    by_seed = zip(results.by_seed(row, column), results.by_seed(baseline, column), strict=True)
    # A model that does not depend on the seed counts once.
    distinct = {(ours.addresses, theirs.addresses): (ours.value, theirs.value) for ours, theirs in by_seed}
    if len(distinct) > 1:
        over_seeds = [ours - theirs for ours, theirs in distinct.values() if ours is not None and theirs is not None]
        test, p = f"{test}, t over seeds", max(p, t_over_seeds(over_seeds))
    shows = measured.equal_scores(row, baseline) or measured.moves(row, baseline)
    low, high = interval_95(measured.less(row, baseline).draws if shows else None)
    return Inference(low, high, p, test, int(held.sum()))


def compare(results: Results, pairs: Mapping[Key, Comparison]) -> dict[Key, CellDifference]:
    """Differences of all cells that have a value in both rows; p-values are corrected over all tests of the table."""
    found = {}
    for key, (row, baseline, column) in pairs.items():
        value = results.means[column].less(row, baseline).value
        if value is not None:
            tested, label = infer(results, row, column, baseline), results.labels[baseline]
            found[key] = CellDifference(baseline=baseline, baseline_label=label, value=value, **tested._asdict())
    p_values = {key: difference.p for key, difference in found.items() if difference.p is not None}
    for key, p in zip(p_values, holm(list(p_values.values())), strict=True):
        found[key] = found[key].model_copy(update={"p_corrected": p})
    return found


def judge(results: Results) -> tuple[FindingResult, ...]:
    """Compare the two rows of each finding, over the seeds and with each; where a seed lacks a value there is no verdict.

    p-values are corrected over all findings of the experiment; one that says that rows are alike has no test.
    """
    by_name = {column.paper or column.key: column for column in results.experiment.columns}
    # A length may have been left out.
    findings = [finding for finding in results.experiment.findings if finding.column in by_name]
    tested = compare(results, {f: (f.higher, f.lower, by_name[f.column].key) for f in findings if f.within is None})
    judged = []
    for finding in findings:
        column, test, within = by_name[finding.column], tested.get(finding), finding.within
        sides = (results.by_seed(row, column.key) for row in (finding.higher, finding.lower))
        pairs = ((higher.value, lower.value) for higher, lower in zip(*sides, strict=True))
        differences = [higher - lower for higher, lower in pairs if higher is not None and lower is not None]
        holding = sum(difference > 0 if within is None else abs(difference) < within for difference in differences)
        higher, lower = results.labels[finding.higher], results.labels[finding.lower]
        judged.append(
            FindingResult(
                claim=finding.claim,
                place=finding.place,
                compared=f"{column.name}: {higher} {'>' if within is None else '≈'} {lower}",
                difference=float(np.mean(differences)) if len(differences) == len(results.seeds) else None,
                **{name: getattr(test, name, None) for name in ("ci_low", "ci_high", "p_corrected")},
                is_tested=within is None,
                decimals=column.decimals,
                seeds_holding=holding,
                seeds=len(differences),
            )
        )
    return tuple(judged)
