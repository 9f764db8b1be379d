"""LongBench's two sides by length: in tokens or in words, as the run says."""

from __future__ import annotations

import numpy as np

from tokenweight.pipeline.manifest import UnitEntry
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.measuring import estimate_from_units
from tokenweight.reports.units import UnitResult


def test_longbench_is_split_by_the_unit_that_the_run_names() -> None:
    entry = UnitEntry(unit="longbench/lcc", benchmark="longbench", task="lcc", address="evaluate/a", fingerprint="f")
    unit = UnitResult(
        entry,
        "complete",
        scores=np.array([0.0, 0.5, 1.0]),
        untruncated_tokens=np.array([8192.0, 8193.0, 9000.0]),
        length_words=np.array([4000.0, 8192.0, 8193.0]),
    )
    found = {}
    for length_unit in ("tokens", "words"):
        for side in ("short", "long"):
            measure = TaskMean("longbench", side=side, unit=length_unit)
            found[length_unit, side] = estimate_from_units(measure, [unit], "a").value
    assert found == {
        ("tokens", "short"): 0.0, ("tokens", "long"): 75.0, ("words", "short"): 25.0, ("words", "long"): 100.0,
    }  # fmt: skip
