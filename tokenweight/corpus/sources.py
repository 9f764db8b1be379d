"""Where documents come from: the synthetic novel, echoes, a directory of files, the hub, a mixture of them."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tokenweight.corpus import files, novel
from tokenweight.corpus.documents import Document, Split
from tokenweight.errors import UserError
from tokenweight.pipeline.digests import is_listing
from tokenweight.recipes.schema import Corpus, FilesCorpus, HubCorpus, MixtureCorpus

_NAMED = 8  # files of a note


def documents(corpus: Corpus, split: Split) -> Iterator[Document]:
    """All documents of one split, in a fixed order, one at a time.

    Raises UserError, naming the file and line or the repository, where the corpus cannot be read.
    """
    return chain.from_iterable([_SOURCES[part.kind][0](part, split) for part in _parts(corpus)])


def document_count(corpus: Corpus, split: Split) -> int:
    """How many documents `documents` will yield; 0 where nobody knows (the hub)."""
    return sum(_SOURCES[part.kind][1](part, split) for part in _parts(corpus))


def file_parts(corpus: Corpus) -> dict[str, FilesCorpus]:
    """What of a corpus is read from files, by the dotted field of its path."""
    by_field = {".path": corpus}
    if isinstance(corpus, MixtureCorpus):
        by_field = {f".parts.{number}.corpus.path": part.corpus for number, part in enumerate(corpus.parts)}
    return {field: part for field, part in by_field.items() if isinstance(part, FilesCorpus)}


def check(corpus: Corpus) -> None:
    """Raise UserError where files cannot be read as documents (one pass over them, no tokenising)."""
    for part in file_parts(corpus).values():
        files.check(part)


def check_split(corpus: Corpus) -> None:
    """UserError where files that are here leave nothing to train on, beside what is kept back for validation."""
    for part in file_parts(corpus).values():
        if (path := Path(part.path)).exists() and not is_listing(path):
            files.check_split(part)


def left_out(corpus: Corpus) -> list[str]:
    """What lies in the corpus's directories and is not read, by name."""
    return [name for part in file_parts(corpus).values() for name in files.left_out(part)]


def not_read(corpus: Corpus) -> dict[str, str]:
    """By directory of the corpus a line that names what is left out there, where something is."""
    lines = {}
    for part in file_parts(corpus).values():
        if names := files.left_out(part):
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            lines[part.path] = f"{part.path}: not read: {', '.join(names[:_NAMED])}{more}"
    return lines


def check_outside(option: str, directory: Path, corpus: Corpus) -> None:
    """UserError for a place in the corpus, whose next reader would take what is written there for documents."""
    place = directory.expanduser().resolve()
    for root in (Path(part.path).resolve() for part in file_parts(corpus).values()):
        if root.is_dir() and place.is_relative_to(root) and files.visible(root, [place]):
            raise UserError(
                f"{option} {directory}: lies in the corpus {root}, whose files are read; choose another place"
            )


def _parts(corpus: Corpus) -> list[Any]:
    return [part.corpus for part in corpus.parts] if isinstance(corpus, MixtureCorpus) else [corpus]


# --- A data set of the Hugging Face hub: streamed, at a pinned revision, no code of others executed ---


def _hub_documents(corpus: HubCorpus, split: Split) -> Iterator[Document]:
    """In the repository's order; `repo_id` may be a local directory of its files."""
    name = corpus.train_split if split == "train" else corpus.validation_split
    if name is None:
        raise UserError("corpus.validation_split: is missing; name the split to measure perplexity on")
    return (_hub_document(corpus, name, number, row) for number, row in enumerate(_hub_rows(corpus, name)))


def _hub_rows(corpus: HubCorpus, split: str) -> Iterator[dict[str, Any]]:
    from datasets import load_dataset

    revision = None if Path(corpus.repo_id).is_dir() else corpus.revision
    try:
        rows: Any = load_dataset(corpus.repo_id, corpus.subset, split=split, streaming=True, revision=revision)
        yield from rows
    except Exception as error:  # datasets and the hub client raise many kinds; all mean that it cannot be read
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        subset = f", subset {corpus.subset}" if corpus.subset else ""
        raise UserError(
            f"corpus.repo_id: {corpus.repo_id} (revision {corpus.revision}{subset}, split {split}) cannot be read: "
            f"{first_line}; go online, or fetch it with `hf download {corpus.repo_id} --repo-type dataset "
            f"--revision {corpus.revision} --local-dir DIR` and set corpus.repo_id to DIR"
        ) from error


def _hub_document(corpus: HubCorpus, split: str, number: int, row: dict[str, Any]) -> Document:
    def string_in(field: str) -> str:
        dotted, value = getattr(corpus, field), row
        for part in dotted.split("."):
            value = value.get(part) if isinstance(value, dict) else None  # type: ignore[assignment]
        if not isinstance(value, str):
            raise UserError(
                f"corpus.{field}: row {number} of {corpus.repo_id} ({split}) has no string in `{dotted}` "
                f"(its fields: {', '.join(row)}); name the field that holds the {field.removesuffix('_field')}"
            )
        return value

    domain = string_in("domain_field") if corpus.domain_field else ""
    return Document(f"{split}:{number:08d}", string_in("text_field").replace("\r\n", "\n"), domain)


# The documents of a split, and how many there are: 0 where nobody knows before the end.
_SOURCES: dict[str, tuple[Callable[[Any, Split], Iterator[Document]], Callable[[Any, Split], int]]] = {
    "novel": (novel.documents, novel.count),
    "echo": (novel.echoes, novel.count),
    "files": (files.documents, files.count),
    "hub": (_hub_documents, lambda corpus, split: 0),
}
