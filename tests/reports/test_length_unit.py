"""LongBench's two sides by length: in tokens or in words, as the run says."""

from __future__ import annotations

from reports_fake_store import FakeStore, manifest_of

from tokenweight.pipeline.experiment import Column, Experiment, Row
from tokenweight.pipeline.manifest import RowEntry
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.build import build_report


def test_longbench_is_split_by_the_unit_that_the_run_names(store: FakeStore) -> None:
    tokens, words = [8192, 8193, 9000], [4000, 8192, 8193]
    store.add("a", "longbench/lcc", [0.0, 0.5, 1.0], tokens=tokens, words=words)
    sides = [(unit, side) for unit in ("tokens", "words") for side in ("short", "long")]
    columns = tuple(
        Column(key=f"{unit} {side}", label=side, measure=TaskMean(benchmark="longbench", side=side, unit=unit))  # type: ignore[arg-type]
        for unit, side in sides
    )
    experiment = Experiment(name="sides", title="Sides", rows=(Row(key="a", label="a", recipe="r"),), columns=columns)
    entry = RowEntry(row="a", recipe="r", units=tuple(store.entries["a"]))
    report = build_report(manifest_of(experiment, [entry]), store.root)
    assert [report.cell("a", column.key).value for column in columns] == [0.0, 75.0, 25.0, 100.0]
