"""Where documents come from: the synthetic novel, echoes, a directory of files, the hub, a mixture of them.

A source is a module with `documents(corpus, split)` and `count(corpus, split)`, 0 where nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tokenweight.corpus import echo, files, hub, novel
from tokenweight.corpus.documents import Document, Split
from tokenweight.recipes.schema import Corpus, FilesCorpus, MixtureCorpus

_SOURCES: dict[str, Any] = {"novel": novel, "echo": echo, "files": files, "hub": hub}


def documents(corpus: Corpus, split: Split) -> Iterator[Document]:
    """All documents of one split, in a fixed order, one at a time.

    Raises UserError, naming the file and line or the repository, where the corpus cannot be read.
    """
    return chain.from_iterable([_SOURCES[part.kind].documents(part, split) for part in _parts(corpus)])


def document_count(corpus: Corpus, split: Split) -> int:
    """How many documents `documents` will yield; 0 where nobody knows (the hub)."""
    return sum(_SOURCES[part.kind].count(part, split) for part in _parts(corpus))


def files_by_field(corpus: Corpus) -> dict[str, list[Path]]:
    """The raw files of a corpus by the dotted field of the path that names them; none where seed or revision identify it."""
    return {field: files.list_files(part) for field, part in file_parts(corpus).items()}


def file_parts(corpus: Corpus) -> dict[str, FilesCorpus]:
    """What of a corpus is read from files, by the dotted field of its path."""
    by_field = {".path": corpus}
    if isinstance(corpus, MixtureCorpus):
        by_field = {f".parts.{number}.corpus.path": part.corpus for number, part in enumerate(corpus.parts)}
    return {field: part for field, part in by_field.items() if isinstance(part, FilesCorpus)}


def check(corpus: Corpus) -> None:
    """Raise UserError where files cannot be read as documents (one pass over them, no tokenising)."""
    for part in _parts(corpus):
        if isinstance(part, FilesCorpus):
            files.check(part)


def _parts(corpus: Corpus) -> list[Any]:
    return [part.corpus for part in corpus.parts] if isinstance(corpus, MixtureCorpus) else [corpus]
