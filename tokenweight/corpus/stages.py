"""The stage `chunk`. Loads the tokenizer's libraries where it runs."""

from collections.abc import Mapping

from tokenweight.pipeline.stage import Artifact, Stage
from tokenweight.recipes import schema


class Chunk(Stage):
    """Training sequences of a corpus (Section 4, Datasets). Input: tokenizer."""

    name = "chunk"
    work = "corpus.chunking.chunk"
    corpus: schema.Corpus
    chunking: schema.Chunking
    short_tokens: int | None = None  # of the novel, where it decides which recalls are long-range
    parity: schema.Parity = "paper"

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        mixture = {"per_document": "", "lcde": "-lcde", "as_is": "-as-is"}[self.chunking.mixture]
        return f"{corpus_label(self.corpus)}{mixture}-{self.chunking.long_tokens}"


def corpus_label(corpus: schema.Corpus) -> str:
    """Readable name of a corpus whose paths are digests, e.g. novel1, files-3fa2c1, mixture-novel2-echo3."""
    match corpus:
        case schema.NovelCorpus() | schema.EchoCorpus():
            return f"{corpus.kind}{corpus.seed}"
        case schema.HubCorpus():
            return corpus.repo_id.rpartition("/")[2]
        case schema.MixtureCorpus():
            return "mixture-" + "-".join(corpus_label(part.corpus) for part in corpus.parts)
    kind, _, digest = corpus.path.partition(":")
    return f"files-{digest[:6] if kind == 'sha256' else kind}"
