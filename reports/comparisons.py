"""Each cell against its baseline: the difference, its interval, and a paired test on the same samples.

So are the paper's findings judged: claims about the order of two rows, tested, and counted over the seeds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from tokenweight.pipeline.experiment import Experiment
from tokenweight.reports.estimates import (
    Estimate,
    RunEstimates,
    equal_scores,
    interval,
    less,
    mean_of_seeds,
    resampling_moves,
    same_samples,
)
from tokenweight.reports.model import CellDifference, FindingResult
from tokenweight.reports.statistics import holm, mcnemar_exact, sign_flips, t_over_seeds
from tokenweight.reports.units import Floats

Key = TypeVar("Key", bound=Hashable)
Comparison = tuple[str, str, str]  # row, its baseline's row, column


@dataclass(frozen=True)
class Measured:
    """What each row of an experiment gives in each column: with each seed, and on average over them."""

    experiment: Experiment
    runs: RunEstimates
    seeds: list[int]

    @cached_property
    def means(self) -> dict[str, dict[str, Estimate]]:
        """Row -> column -> mean over the seeds."""
        return {
            row.key: {
                column: mean_of_seeds(self.by_seed(row.key, column)) for column in self.runs[row.key, self.seeds[0]]
            }
            for row in self.experiment.rows
        }

    @cached_property
    def labels(self) -> dict[str, str]:
        """Both labels of each row."""
        return {row.key: row.name for row in self.experiment.rows}

    def by_seed(self, row: str, column: str) -> list[Estimate]:
        """A cell with each seed."""
        return [self.runs[row, seed][column] for seed in self.seeds]


def compare(measured: Measured, pairs: Mapping[Key, Comparison]) -> dict[Key, CellDifference]:
    """Differences of all cells that have a value in both rows; p-values are corrected over all tests of the table."""
    found = {}
    for key, (row, baseline, column) in pairs.items():
        if None not in (measured.means[row][column].value, measured.means[baseline][column].value):
            found[key] = _compare(measured, row, baseline, column)
    tested = {key: difference.p for key, difference in found.items() if difference.p is not None}
    for key, p in zip(tested, holm(list(tested.values())), strict=True):
        found[key] = found[key].model_copy(update={"p_corrected": p})
    return found


def judge(measured: Measured) -> tuple[FindingResult, ...]:
    """Compare the two rows of each finding, over the seeds and with each; where a seed lacks a value there is no verdict.

    p-values are corrected over all findings of the experiment; one that says that rows are alike has no test.
    """
    by_name = {column.paper or column.key: column for column in measured.experiment.columns}
    # A length may have been left out.
    findings = [finding for finding in measured.experiment.findings if finding.column in by_name]
    tested = compare(
        measured,
        {f: (f.higher, f.lower, by_name[f.column].key) for f in findings if f.within is None},
    )
    results = []
    for finding in findings:
        column, test = by_name[finding.column], tested.get(finding)
        sides = (measured.by_seed(row, column.key) for row in (finding.higher, finding.lower))
        differences = [
            higher.value - lower.value
            for higher, lower in zip(*sides, strict=True)
            if higher.value is not None and lower.value is not None
        ]
        holding = sum(abs(d) < finding.within if finding.within is not None else d > 0 for d in differences)
        sign = "≈" if finding.within is not None else ">"
        results.append(
            FindingResult(
                claim=finding.claim,
                place=finding.place,
                compared=f"{column.name}: {measured.labels[finding.higher]} {sign} {measured.labels[finding.lower]}",
                difference=float(np.mean(differences)) if len(differences) == len(measured.seeds) else None,
                ci_low=test.ci_low if test else None,
                ci_high=test.ci_high if test else None,
                p_corrected=test.p_corrected if test else None,
                is_tested=finding.within is None,
                decimals=column.decimals,
                seeds_holding=holding,
                seeds=len(differences),
            )
        )
    return tuple(results)


def _compare(measured: Measured, row: str, baseline: str, column: str) -> CellDifference:
    cell, reference = measured.means[row][column], measured.means[baseline][column]
    difference = less(cell, reference)
    shown = CellDifference(baseline=baseline, baseline_label=measured.labels[baseline], value=difference.value)
    if not same_samples(cell, reference):
        return shown.model_copy(update={"reason": "not tested: it rests on other samples than the baseline"})
    test, p = _test(cell, reference)
    by_seed = zip(measured.by_seed(row, column), measured.by_seed(baseline, column), strict=True)
    # A model that does not depend on the seed counts once.
    distinct = {(ours.addresses, theirs.addresses): (ours.value, theirs.value) for ours, theirs in by_seed}
    if len(distinct) > 1:
        over_seeds = [ours - theirs for ours, theirs in distinct.values() if ours is not None and theirs is not None]
        test, p = f"{test}, t over seeds", max(p, t_over_seeds(over_seeds))
    # None where it would have no width although the rows differ: the same difference in all samples of each task.
    moves = equal_scores(cell, reference) or resampling_moves(cell, reference)
    low, high = interval(difference.draws if moves else None)
    n = sum(len(term.scores) for term in cell.terms.values())
    return shown.model_copy(update={"ci_low": low, "ci_high": high, "p": p, "test": test, "n": n})


def _test(cell: Estimate, reference: Estimate) -> tuple[str, float]:
    """Name of the test and its p.

    Seeds average each sample's score first, which says whether these models differ on other samples. That p is not
    taken alone: the difference must show over the seeds too (t-test of the differences of each seed), and the larger p
    counts (an intersection-union test: Berger, Technometrics 1982).
    """
    first, second = cell.terms, reference.terms
    if len(first) == 1 and all(_is_binary(term.scores) for term in (*first.values(), *second.values())):
        return "McNemar", mcnemar_exact(*(term.scores for term in (*first.values(), *second.values())))
    contributions = [term.contributions - second[key].contributions for key, term in first.items()]
    return "sign flips", sign_flips(np.concatenate(contributions))


def _is_binary(scores: Floats) -> bool:
    return bool(np.all((scores == 0) | (scores == 1)))
