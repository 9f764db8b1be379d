"""The stages `prepare` (prompts that are made beforehand) and `evaluate` (one unit of one checkpoint)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.evaluation.units import Unit, benchmark_of
from tokenweight.pipeline.stage import Artifact, Input, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Evaluation, Execution


class UnitStage(Stage):
    """What both know: the unit, and the settings that it depends on, with digests in place of paths."""

    unit: Unit
    evaluation: Evaluation  # what the unit depends on and nothing else (evaluation.units.settings_of)
    context_tokens: int | None


class Prepare(UnitStage):
    """Prompts of a RULER or LongBench unit for one tokenizer. Input: tokenizer."""

    name = "prepare"
    template: dict[str, Any]  # versions and hub revision that the prompts depend on

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        name = self.unit.id.replace("/", "-")
        return name if self.context_tokens is None else f"{name}-{self.context_tokens}"

    def run(
        self, inputs: Mapping[str, Input], out_dir: Path, execution: Execution, progress: Progress
    ) -> dict[str, Any]:
        benchmark = benchmark_of(self.unit)
        return benchmark.prepare(
            self.unit, self.evaluation, inputs["tokenizer"].path, self.context_tokens or 0, out_dir
        )


class Evaluate(UnitStage):
    """Samples of one unit. Inputs: checkpoint; prepared, or chunks and scores (planted), or scorer (PMI, phrase).

    Units of one checkpoint and benchmark run together, by tasks.make.
    """

    name = "evaluate"
    context_tokens: int
    protocol: dict[str, Any]  # versions of harness and prompts, shots, generation
    scoring: dict[str, Any]  # metric and its versions: with others the same outputs are scored again

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        backend = self.evaluation.backend
        name = f"{inputs['checkpoint'].short_name}--{self.unit.id.replace('/', '-')}"
        return name if backend == "hf" else f"{name}-{backend}"
