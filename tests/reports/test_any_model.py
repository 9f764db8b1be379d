"""The table of any models: BBH's two scores, and rows that answer samples of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tokenweight.pipeline.experiment import Lengths
from tokenweight.pipeline.manifest import UnitEntry
from tokenweight.pipeline.measures import SampleMean
from tokenweight.reports.agreement import disagreement
from tokenweight.reports.measuring import estimate_from_units
from tokenweight.reports.targets.columns import usual_columns
from tokenweight.reports.targets.schema import Benchmark
from tokenweight.reports.units import UnitResult

AT = Lengths(ruler=(8192, 16_384), perplexity=(4096,))


def unit(**changes: object) -> UnitResult:
    entry = UnitEntry(unit="bbh/snarks", benchmark="bbh", task="snarks", address="evaluate/a", fingerprint="f")
    scores = {"scores": np.array([0.0, 1.0]), "tolerant_scores": np.array([1.0, 1.0])}
    record = {"config": {"protocol": {"shots": 3}}}
    return replace(UnitResult(entry, "complete", n_expected=2, data_digest="d", record=record, **scores), **changes)


def test_strict_and_tolerant_are_two_numbers() -> None:
    strict = estimate_from_units(SampleMean("bbh"), [unit()], "a")
    tolerant = estimate_from_units(SampleMean("bbh", tolerant=True), [unit()], "a")
    assert (strict.value, tolerant.value) == (50.0, 100.0)


def test_rows_without_tolerant_scores_are_refused() -> None:
    bare = unit(tolerant_scores=np.array([np.nan, 1.0]))
    estimate = estimate_from_units(SampleMean("bbh", tolerant=True), [bare], "a")
    assert (estimate.status, estimate.value) == ("refused", None)


def test_other_samples_may_stand_together_other_protocols_not() -> None:
    other = unit(data_digest="e")
    assert "questions asked" in (disagreement({"a": [unit()], "b": [other]}) or "")
    assert disagreement({"a": [unit()], "b": [other]}, same_questions=False) is None
    shots = unit(record={"config": {"protocol": {"shots": 2}}})
    assert "protocol.shots" in (disagreement({"a": [unit()], "b": [shots]}, same_questions=False) or "")


@pytest.mark.parametrize("benchmark", get_args(Benchmark))
def test_only_the_columns_of_what_was_run(benchmark: str) -> None:
    columns = usual_columns([benchmark], AT, brief=False)
    assert {getattr(column.measure, "benchmark", benchmark) for column in columns} == {benchmark}
    assert all(column.paper is None for column in columns)
