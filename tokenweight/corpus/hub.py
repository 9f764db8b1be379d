"""A data set of the Hugging Face hub as a corpus: streamed, at a pinned revision, no code of others executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenweight.corpus.documents import Document, Split
from tokenweight.errors import UserError
from tokenweight.recipes.schema import HubCorpus


def documents(corpus: HubCorpus, split: Split) -> Iterator[Document]:
    """The documents of one split in the repository's order; `repo_id` may be a local directory of its files."""
    name = corpus.train_split if split == "train" else corpus.validation_split
    if name is None:
        raise UserError("corpus.validation_split: none is given; name the split to measure perplexity on")
    return (_document(corpus, name, number, row) for number, row in enumerate(_rows(corpus, name)))


def count(corpus: HubCorpus, split: Split) -> int:
    """Nobody knows before the end."""
    return 0


def _rows(corpus: HubCorpus, split: str) -> Iterator[dict[str, Any]]:
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


def _document(corpus: HubCorpus, split: str, number: int, row: dict[str, Any]) -> Document:
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
