"""Corpora: where texts come from. Part of :mod:`.schema`, which names them all."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenweight.recipes.frozen import Frozen

MOST = 10**9
Count = Annotated[int, Field(gt=0, le=MOST)]  # of steps, documents, tokens: one digit too many is a slip
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy's and torch's generators take


class NovelCorpus(Frozen):
    """The synthetic novel: seeded text in which the kind of each token is known."""

    kind: Literal["novel"] = "novel"
    seed: Seed = 0
    documents: Count = 64
    document_tokens: Count = 20_000  # length aimed at; documents vary around it
    validation_documents: Count = 8


class FilesCorpus(Frozen):
    """A directory of .txt, .jsonl or .parquet files (field `text`); its content is its identity."""

    kind: Literal["files"] = "files"
    path: str
    validation_documents: Count = 8  # the last in the order of a seeded shuffle


class HubCorpus(Frozen):
    """A data set of the Hugging Face hub, read as parquet or JSON at a pinned revision."""

    kind: Literal["hub"] = "hub"
    repo_id: str
    revision: str
    subset: str | None = None
    train_split: str = "train"
    validation_split: str | None = "validation"
    text_field: str = "text"
    domain_field: str | None = None  # dotted path, e.g. meta.redpajama_set_name (LCDE keeps domain shares)


class EchoCorpus(Frozen):
    """Random passages, each said again and again: text that only looking back explains."""

    kind: Literal["echo"] = "echo"
    seed: Seed = 0
    documents: Count = 64
    document_tokens: Count = 1000  # length aimed at
    validation_documents: Count = 8


class MixturePart(Frozen):
    """One corpus of a mixture and its share of the sequences; `packed`: documents end to end, end-of-text between."""

    corpus: Annotated[NovelCorpus | FilesCorpus | HubCorpus | EchoCorpus, Field(discriminator="kind")]
    share: float = Field(gt=0, lt=1)
    packed: bool = False  # False: each document on its own, a short remainder left out


class MixtureCorpus(Frozen):
    """Several corpora in fixed shares of the sequences, shuffled together; validation documents are those of all."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[MixturePart, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs((total := sum(part.share for part in self.parts)) - 1) > 1e-9:
            raise ValueError(f"parts: their shares add up to {total:g}, not to 1")
        return self


Corpus = Annotated[NovelCorpus | FilesCorpus | HubCorpus | EchoCorpus | MixtureCorpus, Field(discriminator="kind")]


def overlap(trained: Corpus, measured: Corpus) -> tuple[int, int] | None:
    """How many of a directory's documents training leaves out, and how many are measured: None unless these are more."""
    if not isinstance(measured, FilesCorpus):
        return None
    parts = [part.corpus for part in trained.parts] if isinstance(trained, MixtureCorpus) else [trained]
    own = [one.validation_documents for one in parts if isinstance(one, FilesCorpus) and one.path == measured.path]
    return (min(own), measured.validation_documents) if own and min(own) < measured.validation_documents else None
