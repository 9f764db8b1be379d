"""Which of the paper's findings show: claims about the order of two rows, counted over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokenweight.reports.estimates import Estimate
from tokenweight.reports.model import FindingResult
from tokenweight.reports.targets.model import Column, Finding


def judge(
    finding: Finding,
    columns: Sequence[Column],
    labels: Mapping[str, str],
    runs: Mapping[tuple[str, int], Mapping[str, Estimate]],
    seeds: Sequence[int],
) -> FindingResult:
    """Compare the two rows with each seed that has both values; `labels` names the rows."""
    column = next(column for column in columns if column.key == finding.column)
    differences = []
    for seed in seeds:
        higher, lower = (runs[row, seed][finding.column].value for row in (finding.higher, finding.lower))
        if higher is not None and lower is not None:
            differences.append(higher - lower)
    holding = sum(abs(d) < finding.within if finding.within is not None else d > 0 for d in differences)
    sign = "≈" if finding.within is not None else ">"
    heading = " ".join(filter(None, (column.group, column.label)))
    return FindingResult(
        claim=finding.claim,
        place=finding.place,
        compared=f"{heading}: {labels[finding.higher]} {sign} {labels[finding.lower]}",
        difference=float(np.mean(differences)) if differences else None,
        decimals=column.decimals,
        seeds_holding=holding,
        seeds=len(differences),
    )
