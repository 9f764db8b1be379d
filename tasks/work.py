"""What each stage does inside its artifact's directory: calls of the library, no Prefect and no store policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenweight.pipeline import Build, Store
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.stages import (
    ChunkWork,
    ExtendWork,
    InitializeWork,
    Node,
    PrepareWork,
    PretrainWork,
    ScoreWork,
    TrainWork,
)
from tokenweight.tasks.locate import model_directory, tokenizer_directory

Maker = Callable[[Build], None]


def maker(node: Node, store: Store, execution: Execution, progress: Progress) -> Maker:
    """The function that makes a node's artifact in the directory of a Build and puts its facts there."""

    def make(build: Build) -> None:
        build.facts.update(_make(node, build, store, execution, progress))

    return make


def _make(node: Node, build: Build, store: Store, execution: Execution, progress: Progress) -> dict[str, Any]:
    out_dir = build.directory
    match node.work:
        case ChunkWork() as work:
            from tokenweight.corpus.chunking import chunk

            tokenizer_dir = tokenizer_directory(work.tokenizer, store)
            return chunk(
                work.corpus,
                work.chunking,
                tokenizer_dir,
                out_dir,
                short_tokens=work.short_tokens,
                progress=progress,
                parity=work.parity,
            )
        case PrepareWork() as work:
            from tokenweight.evaluation.prepare import prepare

            tokenizer_dir = tokenizer_directory(work.tokenizer, store)
            return prepare(work.unit, work.evaluation, tokenizer_dir, work.context_tokens, out_dir)
        case PretrainWork() as work:
            from tokenweight.training.pretraining import pretrain

            tokenizer_dir = tokenizer_directory(work.tokenizer, store)
            return pretrain(work.base, tokenizer_dir, store.path(work.chunks.identity), out_dir, execution, progress)
        case InitializeWork() as work:
            from tokenweight.training.random_base import initialize

            return initialize(work.base, tokenizer_directory(work.tokenizer, store), out_dir)
        case ScoreWork() as work:
            from tokenweight.training.scoring import score

            return score(
                model_directory(work.model, store),
                store.path(work.chunks.identity),
                out_dir,
                scorer=work.scorer,
                sequences=work.sequences,
                scorer_fingerprint=work.model.fingerprint,
                precision=work.precision,
                tokenizer_dir=tokenizer_directory(work.tokenizer, store),
                parity=work.parity,
                execution=execution,
                progress=progress,
            )
        case ExtendWork() as work:
            from tokenweight.context.extend import extend

            extend(model_directory(work.model, store), work.extension, out_dir)
            return {}
        case TrainWork() as work:
            from tokenweight.training.request import TrainRequest
            from tokenweight.training.run import train

            request = TrainRequest(
                model_dir=model_directory(work.model, store),
                chunk_dir=store.path(work.chunks.identity),
                score_dir=store.path(work.scores.identity) if work.scores else None,
                training=work.training,
                weighting=work.weighting,
                scorer=work.scorer,
                seed=work.seed,
                parity=work.parity,
            )
            return train(request, out_dir, execution, progress)
        case _:
            raise ValueError(f"{node.stage} is made in groups")
