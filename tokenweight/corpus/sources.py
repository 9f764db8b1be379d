"""Where documents come from: the synthetic novel, a directory of files, the hub, a mixture of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from tokenweight.corpus import echo, files, novel
from tokenweight.corpus.documents import Document
from tokenweight.recipes.schema import Corpus, EchoCorpus, FilesCorpus, MixtureCorpus, NovelCorpus

Split = Literal["train", "validation"]


def documents(corpus: Corpus, split: Split, *, labelled: bool = True) -> Iterator[Document]:
    """All documents of one split, in a fixed order, one at a time; without `labelled` the novel leaves its spans out.

    Raises UserError, naming the file and line or the repository, where the corpus cannot be read.
    """
    if isinstance(corpus, NovelCorpus):
        return _novel(corpus, split, labelled)
    if isinstance(corpus, EchoCorpus):
        count = corpus.validation_documents if split == "validation" else corpus.documents
        return echo.echoes(corpus.seed, split, count, corpus.document_tokens)
    if isinstance(corpus, FilesCorpus):
        return files.documents(corpus, split)
    if isinstance(corpus, MixtureCorpus):
        return chain.from_iterable(documents(part.corpus, split, labelled=labelled) for part in corpus.parts)
    from tokenweight.corpus import hub

    return hub.documents(corpus, split)


def corpus_files(corpus: Corpus) -> list[Path]:
    """The raw files whose content is the corpus's identity; none where seed or revision identify it."""
    if isinstance(corpus, MixtureCorpus):
        return [path for part in corpus.parts for path in corpus_files(part.corpus)]
    return files.list_files(corpus) if isinstance(corpus, FilesCorpus) else []


def files_by_field(corpus: Corpus, prefix: str = "") -> dict[str, list[Path]]:
    """The raw files of a corpus by the dotted field of the path that names them; none where seed or revision identify it."""
    if isinstance(corpus, MixtureCorpus):
        return {
            field: paths
            for number, part in enumerate(corpus.parts)
            for field, paths in files_by_field(part.corpus, f"{prefix}.parts.{number}.corpus").items()
        }
    return {f"{prefix}.path": files.list_files(corpus)} if isinstance(corpus, FilesCorpus) else {}


def check(corpus: Corpus) -> None:
    """Raise UserError where files cannot be read as documents (one pass over them, no tokenising)."""
    if isinstance(corpus, MixtureCorpus):
        for part in corpus.parts:
            check(part.corpus)
    if isinstance(corpus, FilesCorpus):
        files.check(corpus)


def document_count(corpus: Corpus, split: Split) -> int:
    """How many documents `documents` will yield; 0 where nobody knows (the hub)."""
    if isinstance(corpus, EchoCorpus):
        return corpus.validation_documents if split == "validation" else corpus.documents
    if isinstance(corpus, NovelCorpus):
        return corpus.validation_documents if split == "validation" else corpus.documents * (1 + novel.SHORTS_PER_BOOK)
    if isinstance(corpus, MixtureCorpus):
        return sum(document_count(part.corpus, split) for part in corpus.parts)
    return files.count(corpus, split) if isinstance(corpus, FilesCorpus) else 0


def _novel(corpus: NovelCorpus, split: Split, labelled: bool) -> Iterator[Document]:
    """Validation is books only; in training every book is followed by its short pieces."""
    tokens = corpus.document_tokens
    if split == "validation":
        yield from novel.books(corpus.seed, split, corpus.validation_documents, tokens, labelled=labelled)
        return
    shorts = corpus.documents * novel.SHORTS_PER_BOOK
    short_pieces = novel.short_pieces(corpus.seed, split, shorts, labelled=labelled)
    for book in novel.books(corpus.seed, split, corpus.documents, tokens, labelled=labelled):
        yield book
        for _ in range(novel.SHORTS_PER_BOOK):
            yield next(short_pieces)
