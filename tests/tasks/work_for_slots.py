"""A graph whose stages take no time: chunks of a few words, some of which cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus.stages import Chunk
from tokenweight.pipeline.stage import Artifact, Graph, LocalTokenizer
from tokenweight.recipes.schema import Chunking, FilesCorpus


class NamedChunk(Chunk):
    """The stage `chunk` by a name of the test's."""

    title: str

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return self.title


def chunk(path: Path, title: str, *needs: Artifact) -> Artifact:
    """Chunks of the texts in `path`; they fail where there are none."""
    tokenizer = Artifact(LocalTokenizer(sha256="0" * 64), sources={"sha256": str(smoke_base_dir())})
    corpus = FilesCorpus(path=str(path), validation_documents=1)
    stage = NamedChunk(corpus=corpus, chunking=Chunking(long_tokens=8), short_tokens=4, title=title)
    return Artifact(stage, {"tokenizer": tokenizer, **{one.identity.name: one for one in needs}})


def texts(path: Path) -> Path:
    """A directory of two texts."""
    path.mkdir(exist_ok=True)
    for i in range(2):
        (path / f"{i}.txt").write_text("one two three four five six seven eight nine ten")
    return path


def graph_of(*artifacts: Artifact) -> Graph:
    """Artifacts that one recipe needs."""
    return Graph(artifacts=list(artifacts), evaluations={"all": list(artifacts)})
