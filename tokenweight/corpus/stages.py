"""The stage `chunk`. Loads the tokenizer's libraries where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.pipeline.stage import Artifact, Inputs, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import (
    Chunking,
    Corpus,
    EchoCorpus,
    Execution,
    HubCorpus,
    MixtureCorpus,
    NovelCorpus,
    Parity,
)


class Chunk(Stage):
    """Training sequences of a corpus (Section 4, Datasets). Input: tokenizer."""

    name = "chunk"
    corpus: Corpus
    chunking: Chunking
    short_tokens: int | None = None  # of the novel, where it decides which recalls are long-range
    parity: Parity = "paper"

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        mixture = "-lcde" if self.chunking.mixture == "lcde" else ""
        return f"{corpus_label(self.corpus)}{mixture}-{self.chunking.long_tokens}"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        from tokenweight.corpus.chunking import chunk

        short_tokens = self.short_tokens or self.chunking.long_tokens
        return chunk(
            self.corpus, self.chunking, inputs["tokenizer"].path, out_dir,
            short_tokens=short_tokens, progress=progress, parity=self.parity,
        )  # fmt: skip


def corpus_label(corpus: Corpus) -> str:
    """Readable name of a corpus whose paths are digests, e.g. novel1, files-3fa2c1, mixture-novel2-echo3."""
    match corpus:
        case NovelCorpus() | EchoCorpus():
            return f"{corpus.kind}{corpus.seed}"
        case HubCorpus():
            return corpus.repo_id.rpartition("/")[2]
        case MixtureCorpus():
            return "mixture-" + "-".join(corpus_label(part.corpus) for part in corpus.parts)
    kind, _, digest = corpus.path.partition(":")
    return f"files-{digest[:6] if kind == 'sha256' else kind}"
