"""Score stored outputs again, without the model: a changed metric costs seconds, not an evaluation.

A unit's identity holds everything that its scores depend on. Where the store has the same unit, scored by another
metric (its version, its packages, LongBench's first-line rule), its outputs are the ones that the model would give.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenweight.evaluation.benchmark import PROMPT_FLAGS, Unit
from tokenweight.evaluation.rows import SUMMARY_NAME, Row, read_rows, write_unit
from tokenweight.evaluation.samples import AskedBenchmark, read_prompts
from tokenweight.evaluation.units import BENCHMARKS, benchmark_of
from tokenweight.pipeline import Identity, Store
from tokenweight.pipeline.store import read_record
from tokenweight.recipes.schema import Evaluation


class StoredOutputs:
    """Which finished units of a store hold the outputs that another unit, not there yet, would ask a model for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_name: dict[str, list[Path]] = {}
        for path in sorted((store.root / "evaluate").glob("[!.]*-????????")):
            self._by_name.setdefault(path.name[:-9], []).append(path)

    def of(self, identity: Identity) -> Path | None:
        """The artifact of the same unit under another scoring, whole; None if there is none."""
        if BENCHMARKS[identity.config["unit"]["benchmark"]].one_pass:
            return None
        return next((path for path in self._by_name.get(identity.name, ()) if self._holds(path, identity)), None)

    def _holds(self, path: Path, identity: Identity) -> bool:
        record = read_record(path)
        if record is None or (record.get("stage_version"), record["inputs"]) != (identity.version, identity.inputs):
            return False
        other = replace(identity, config=record["config"])
        same = _unscored(other) == _unscored(identity) and self._store.path(other) == path
        return same and self._store.state(other).kind == "complete"


def _unscored(identity: Identity) -> dict[str, Any]:
    """A unit's configuration without what its outputs do not depend on: metric, LongBench's first-line rule."""
    name, evaluation = identity.config["unit"]["benchmark"], identity.config["evaluation"]
    asked = {key: value for key, value in evaluation[name].items() if key not in BENCHMARKS[name].scoring_fields}
    return {**identity.config, "scoring": None, "evaluation": {**evaluation, name: asked}}


def rescore_unit(
    scored_dir: Path, unit: Unit, evaluation: Evaluation, prepared_dir: Path | None, out_dir: Path
) -> None:
    """Write rows and summary of a unit into `out_dir` from the outputs in `scored_dir`."""
    rows = rescore_rows(read_rows(scored_dir), unit, evaluation, prepared_dir)
    before = json.loads((scored_dir / SUMMARY_NAME).read_text())
    content = benchmark_of(unit).summary(unit, rows, before["n_expected"], before["seconds"])
    kept = {flag for flag in before["flags"] if flag in PROMPT_FLAGS}
    content |= {"flags": sorted({*content["flags"], *kept}), "outputs_from": scored_dir.name}
    write_unit(rows, content, out_dir)


def rescore_rows(
    rows: Sequence[Row], unit: Unit, evaluation: Evaluation, prepared_dir: Path | None = None
) -> list[Row]:
    """Rows with filtered, metric and scores computed anew; LongBench's prompts have the class names of trec."""
    benchmark = benchmark_of(unit)
    assert isinstance(benchmark, AskedBenchmark)
    prompts = read_prompts(prepared_dir) if prepared_dir else ()
    classes = {record["doc_id"]: record.get("all_classes") for record in prompts}
    found = []
    for row in rows:
        references = json.loads(row.reference)
        scored = benchmark.score(unit.task, row.output, references, classes.get(row.doc_id), evaluation)
        found.append(replace(row, metric=benchmark.metric(unit.task), **vars(scored)))
    return found
