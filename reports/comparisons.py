"""Each cell against its baseline: the difference, its interval, and a paired test on the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenweight.reports.estimates import Estimate, equal_scores, less, resampling_moves, same_samples
from tokenweight.reports.model import CellDifference
from tokenweight.reports.significance import holm, mcnemar_exact, sign_flips, t_over_seeds
from tokenweight.reports.statistics import interval_95
from tokenweight.reports.units import Floats

Place = tuple[str, str]  # row and column


@dataclass(frozen=True)
class Pair:
    """A cell and its baseline: means over the seeds, and each seed's own estimates."""

    baseline: str  # key of the baseline's row
    baseline_label: str
    cell: Estimate
    reference: Estimate
    cell_by_seed: Sequence[Estimate]
    reference_by_seed: Sequence[Estimate]


def pair_of(
    row: str,
    baseline: str,
    column: str,
    baseline_label: str,
    estimates: Mapping[str, Mapping[str, Estimate]],
    runs: Mapping[tuple[str, int], Mapping[str, Estimate]],
    seeds: Sequence[int],
) -> Pair:
    """Two rows in one column; `estimates` are by row, `runs` by row and seed."""
    return Pair(
        baseline=baseline,
        baseline_label=baseline_label,
        cell=estimates[row][column],
        reference=estimates[baseline][column],
        cell_by_seed=[runs[row, seed][column] for seed in seeds],
        reference_by_seed=[runs[baseline, seed][column] for seed in seeds],
    )


def compare(pairs: Mapping[Place, Pair]) -> dict[Place, CellDifference]:
    """Differences of all cells that have a value in both rows; p-values are corrected over all tests of the table."""
    there = {place: pair for place, pair in pairs.items() if None not in (pair.cell.value, pair.reference.value)}
    found = {place: _compare(pair) for place, pair in there.items()}
    tested = {place: difference.p for place, difference in found.items() if difference.p is not None}
    for place, p in zip(tested, holm(list(tested.values())), strict=True):
        found[place] = found[place].model_copy(update={"p_corrected": p})
    return found


def _compare(pair: Pair) -> CellDifference:
    difference = less(pair.cell, pair.reference)
    shown = CellDifference(baseline=pair.baseline, baseline_label=pair.baseline_label, value=difference.value)
    if not same_samples(pair.cell, pair.reference):
        return shown.model_copy(update={"reason": "not tested: it rests on other samples than the baseline"})
    test, p = _test(pair)
    low, high = _interval(pair, difference)
    n = sum(len(term.scores) for term in pair.cell.terms.values())
    return shown.model_copy(update={"ci_low": low, "ci_high": high, "p": p, "test": test, "n": n})


def _interval(pair: Pair, difference: Estimate) -> tuple[float | None, float | None]:
    """None where it would have no width although the rows differ: the same difference in all samples of each task."""
    if difference.draws is None or difference.value is None:
        return None, None
    if not equal_scores(pair.cell, pair.reference) and not resampling_moves(pair.cell, pair.reference):
        return None, None
    return interval_95(difference.draws)


def _test(pair: Pair) -> tuple[str, float]:
    """Name of the test and its p.

    Seeds average each sample's score first, which says whether these models differ on other samples. That p is not
    taken alone: the difference must show over the seeds too (t-test of the differences of each seed), and the larger p
    counts (an intersection-union test: Berger, Technometrics 1982).
    """
    first, second = pair.cell.terms, pair.reference.terms
    if len(first) == 1 and all(_is_binary(term.scores) for term in (*first.values(), *second.values())):
        test, p = "McNemar", mcnemar_exact(*(term.scores for term in (*first.values(), *second.values())))
    else:
        contributions = [term.contributions - second[key].contributions for key, term in first.items()]
        test, p = "sign flips", sign_flips(np.concatenate(contributions))
    by_seed = zip(pair.cell_by_seed, pair.reference_by_seed, strict=True)
    distinct = {(cell.addresses, reference.addresses): (cell.value, reference.value) for cell, reference in by_seed}
    if len(distinct) == 1:
        return test, p
    over_seeds = [
        cell - reference for cell, reference in distinct.values() if cell is not None and reference is not None
    ]
    return f"{test}, t over seeds", max(p, t_over_seeds(over_seeds))


def _is_binary(scores: Floats) -> bool:
    return bool(np.all((scores == 0) | (scores == 1)))
