"""The table of any models: BBH's two scores, and rows that answer samples of their own."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

import pytest
from reports_fake_store import FakeStore, manifest_of

from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.pipeline.experiment import Column, Experiment, Lengths, Row
from tokenweight.pipeline.manifest import RowEntry, UnitEntry
from tokenweight.pipeline.measures import SampleMean
from tokenweight.reports.agreement import disagreement
from tokenweight.reports.build import build_report
from tokenweight.reports.model import Cell
from tokenweight.reports.samples import UnitResult
from tokenweight.reports.targets.columns import usual_columns

AT = Lengths(ruler=(8192, 16_384), perplexity=(4096,))


def unit(**changes: object) -> UnitResult:
    entry = UnitEntry(unit="bbh/snarks", benchmark="bbh", task="snarks", address="evaluate/a", fingerprint="f")
    record = {"config": {"protocol": {"shots": 3}}}
    return replace(UnitResult(entry, "complete", n=2, n_expected=2, questions="d", record=record), **changes)


def bbh(store: FakeStore, tolerant: list[float | None]) -> tuple[Cell, Cell]:
    """The strict and the tolerant score."""
    store.add("a", "bbh/snarks", [0.0, 1.0], tolerant=tolerant)
    columns = (
        Column(key="strict", label="", measure=SampleMean(benchmark="bbh")),
        Column(key="tolerant", label="", measure=SampleMean(benchmark="bbh", tolerant=True)),
    )
    experiment = Experiment(name="e", title="E", rows=(Row(key="a", label="a", recipe="r"),), columns=columns)
    entry = RowEntry(row="a", recipe="r", units=tuple(store.entries["a"]))
    report = build_report(manifest_of(experiment, [entry]), store.root)
    return report.cell("a", "strict"), report.cell("a", "tolerant")


def test_strict_and_tolerant_are_two_numbers(store: FakeStore) -> None:
    strict, tolerant = bbh(store, [1.0, 1.0])
    assert (strict.value, tolerant.value) == (50.0, 100.0)


def test_rows_without_tolerant_scores_are_refused(store: FakeStore) -> None:
    strict, tolerant = bbh(store, [None, 1.0])
    assert strict.value == 50.0
    assert (tolerant.status, tolerant.value) == ("refused", None)


def test_other_samples_may_stand_together_other_protocols_not() -> None:
    def found(other: UnitResult, same_questions: bool = False) -> str | None:
        return disagreement({("a", 0): [unit()], ("b", 0): [other]}, itemgetter(0), same_questions=same_questions)

    assert "questions asked" in (found(unit(questions="e"), same_questions=True) or "")
    assert found(unit(questions="e")) is None
    assert "protocol.shots" in (found(unit(record={"config": {"protocol": {"shots": 2}}})) or "")


def test_scores_by_the_base_are_one_among_the_rows_of_a_seed() -> None:
    one, other = (unit(record={"config": {}, "inputs": {"scores": scores}}) for scores in "xy")
    rows = {("a", 0): [one], ("b", 0): [one], ("a", 1): [other]}
    assert disagreement(rows, itemgetter(0), same_questions=True) is None
    rows["b", 0] = [other]
    assert "seed 0.scores differs" in (disagreement(rows, itemgetter(0), same_questions=True) or "")


@pytest.mark.parametrize("benchmark", [name for name, one in BENCHMARKS.items() if one.offered and not one.is_family])
def test_only_the_columns_of_what_was_run(benchmark: str) -> None:
    columns = usual_columns([benchmark], AT, brief=False)
    assert {getattr(column.measure, "benchmark", benchmark) for column in columns} == {benchmark}
    assert all(column.paper is None for column in columns)
