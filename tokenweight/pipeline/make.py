"""Making one artifact: its stage runs in the directory that the store gives it, under its lease."""

from __future__ import annotations

from collections.abc import Callable

from tokenweight.pipeline.locate import located
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Build, Store
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution


def made(
    artifact: Artifact, store: Store, execution: Execution, progress: Progress, note: Callable[[str], None]
) -> bool:
    """Make an artifact whose inputs are there, unless the store holds it; whether it was there."""

    def build(work: Build) -> None:
        stage = artifact.stage.placed(artifact.sources)
        work.facts.update(stage.run(located(artifact, store), work.directory, execution, progress))

    return store.get_or_build(artifact.identity, build, note=note)[1]
