"""The stage `extend`. Loads torch where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.pipeline.stage import Artifact, Input, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution, Extension


class Extend(Stage):
    """A model with a longer context by RoPE (Section 4, Models). Input: model."""

    name = "extend"
    folder = "model"
    extension: Extension

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['model'].short_name}-{self.extension.method}-{self.extension.long_tokens}"

    def run(
        self, inputs: Mapping[str, Input], out_dir: Path, execution: Execution, progress: Progress
    ) -> dict[str, Any]:
        from tokenweight.context.extend import extend

        extend(inputs["model"].path, self.extension, out_dir)
        return {}
