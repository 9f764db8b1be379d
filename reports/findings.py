"""Which of the paper's findings show: claims about the order of two rows, tested, and counted over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokenweight.pipeline.experiment import Column, Experiment, Finding
from tokenweight.reports.comparisons import compare, pair_of
from tokenweight.reports.estimates import Estimate
from tokenweight.reports.model import FindingResult


def judge(
    experiment: Experiment,
    estimates: Mapping[str, Mapping[str, Estimate]],
    runs: Mapping[tuple[str, int], Mapping[str, Estimate]],
    seeds: Sequence[int],
) -> tuple[FindingResult, ...]:
    """Compare the two rows of each finding, over the seeds and with each; where a seed lacks a value there is no verdict.

    p-values are corrected over all findings of the experiment; one that says that rows are alike has no test.
    `estimates` are means over seeds by row and column, `runs` each seed's own.
    """
    labels = {row.key: row.name for row in experiment.rows}
    by_name = {column.paper or column.key: column for column in experiment.columns}
    findings = [
        finding for finding in experiment.findings if finding.column in by_name
    ]  # a length may have been left out
    pairs = {
        (finding.claim, finding.column): pair_of(
            finding.higher, finding.lower, by_name[finding.column].key, labels[finding.lower], estimates, runs, seeds
        )
        for finding in findings
        if finding.within is None
    }
    tested = compare(pairs)
    results = []
    for finding in findings:
        column = by_name[finding.column]
        differences = _differences(finding, column, runs, seeds)
        holding = sum(abs(d) < finding.within if finding.within is not None else d > 0 for d in differences)
        sign = "≈" if finding.within is not None else ">"
        test = tested.get((finding.claim, finding.column))
        results.append(
            FindingResult(
                claim=finding.claim,
                place=finding.place,
                compared=f"{column.name}: {labels[finding.higher]} {sign} {labels[finding.lower]}",
                difference=float(np.mean(differences)) if len(differences) == len(seeds) else None,
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


def _differences(
    finding: Finding,
    column: Column,
    runs: Mapping[tuple[str, int], Mapping[str, Estimate]],
    seeds: Sequence[int],
) -> list[float]:
    """Of each seed that has both values."""
    found = []
    for seed in seeds:
        higher, lower = (runs[row, seed][column.key].value for row in (finding.higher, finding.lower))
        if higher is not None and lower is not None:
            found.append(higher - lower)
    return found
