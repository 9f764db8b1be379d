"""Make the tokenizer of scale `mini` that the package ships (tokenweight/assets/books-8k), from a directory of books.

    python scripts/make_mini_tokenizer.py --books DIR [--out DIR]

Learns an 8,192-entry byte-level BPE on the books that scale `mini` trains on (not on those that it keeps back), on the
synthetic novel, and on RULER's word lists, so that names and keys are few tokens. Two minutes on one core.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from learn_tokenizer import save_tokenizer, train_tokenizer

from tokenweight.assets import tokenizer_dir
from tokenweight.corpus import novel
from tokenweight.corpus.manuscript import words
from tokenweight.corpus.sources import documents
from tokenweight.recipes.schema import FilesCorpus

TOKENIZER = "books-8k"  # as scale mini names it
VOCABULARY = 8192
NOVEL_SEED = 1_000_003  # of no recipe
NOVEL_PIECES = 2000
MAX_TOKENS = 131_072


def main() -> None:
    """Learn and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, required=True, help="directory of .txt, .jsonl or .parquet files")
    parser.add_argument("--out", type=Path, default=tokenizer_dir(TOKENIZER))
    args = parser.parse_args()
    save_tokenizer(train_tokenizer(texts(args.books), VOCABULARY), args.out, model_max_tokens=MAX_TOKENS)


def texts(books: Path) -> Iterator[str]:
    """What the tokenizer learns from; digits have entries of their own (learn_tokenizer)."""
    for book in documents(FilesCorpus(path=str(books), validation_documents=10), "train"):
        yield _without_digits(book.text)
    for piece in novel.short_pieces(NOVEL_SEED, "tokenizer", NOVEL_PIECES):
        yield _without_digits(piece.text)
    for word in (*words("noun"), *words("adjective")):
        yield f" {word} -{word} {word}"


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", " ", text)


if __name__ == "__main__":
    main()
