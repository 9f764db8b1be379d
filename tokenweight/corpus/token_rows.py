"""A data set whose rows are sequences of token ids already (`chunking.mixture: as_is`), each read as it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.files import list_files, open_parquet, parquet_column
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Corpus, FilesCorpus

COLUMN = "input_ids"


def row_tokens(corpus: Corpus) -> int:
    """Tokens of the first row. UserError where there is none, or it has no token ids."""
    return next((tokens.shape[1] for _, _, tokens in _blocks(corpus)), 0)


def chunk_rows(stage: Chunk, out_dir: Path, progress: Progress) -> dict[str, Any]:
    """Write what :func:`~.chunking.chunk` does, in the order of files and rows; a row is a document of its own.

    UserError where rows are of several lengths, of another than `chunking.long_tokens`, or fewer than `chunking.sequences`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    chunking = stage.chunking
    available = sum(open_parquet(path).metadata.num_rows for path in _files(stage.corpus))
    rows = chunking.sequences or available
    if rows > available:
        raise UserError(
            f"chunking.sequences: {rows} sequences are needed, the corpus has {available} rows; ask for fewer"
        )
    shape = (rows, chunking.long_tokens)
    array: Any = np.lib.format.open_memmap(out_dir / "tokens.npy", "w+", np.uint32, shape)  # type: ignore[no-untyped-call]
    names = list[str]()
    for name, first, tokens in _blocks(stage.corpus, chunking.long_tokens):
        own = tokens[: rows - len(names)]
        array[len(names) : len(names) + len(own)] = own
        names += [f"{name}:{first + row}" for row in range(len(own))]
        progress(len(names), rows, "sequences")
        if len(names) == rows:
            break
    array.flush()
    zeros = np.zeros(rows, np.int64)
    index = {"sequence_id": np.arange(rows), "document_id": names, "start_token": zeros, "position": zeros}
    index["tokens"] = zeros + chunking.long_tokens
    pq.write_table(pa.table(index), out_dir / "sequences.parquet")  # type: ignore[no-untyped-call]
    account = {"mixture": "as_is", "long_tokens": chunking.long_tokens, "bos": False, "crosses_documents": False}
    account |= {"sequences": rows, "documents": rows, "tokens": rows * chunking.long_tokens}
    (out_dir / "accounting.json").write_text(json.dumps(account, indent=2) + "\n")
    return account


def _files(corpus: Corpus) -> list[Path]:
    if not isinstance(corpus, FilesCorpus):
        raise UserError("chunking.mixture: as_is reads files of token ids; give a directory of .parquet files")
    files = list_files(corpus)
    if others := [file.name for file in files if file.suffix.lower() != ".parquet"]:
        raise UserError(
            f"corpus.path: {corpus.path} has {others[0]}, which is text; with as-is only token ids in .parquet files are read; "
            "leave as-is out, or give these files alone"
        )
    return files


def _blocks(corpus: Corpus, long_tokens: int | None = None) -> Iterator[tuple[str, int, NDArray[np.int64]]]:
    """Some rows after the others: the file, the number of the first of them, from 1, and their ids [rows, tokens]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for path in _files(corpus):
        schema, first = open_parquet(path).schema_arrow, 1
        kind = schema.field(COLUMN).type if COLUMN in schema.names else None
        if kind is None or not hasattr(kind, "value_type") or not pa.types.is_integer(kind.value_type):
            raise UserError(f"{path}: no column `{COLUMN}` of lists of token ids; write it, or leave as-is out")
        for column in parquet_column(path, COLUMN):
            lengths = np.array(pc.fill_null(pc.list_value_length(column), 0))
            long_tokens = long_tokens or int(lengths[0])
            if (wrong := np.flatnonzero((lengths != long_tokens) | (lengths < 2))).size:
                row = int(wrong[0])
                raise UserError(
                    f"{path}, row {first + row}: has {lengths[row]} tokens in `{COLUMN}`, the first row {long_tokens}; "
                    "with as-is all rows must have one length of at least two tokens"
                )
            flat = column.flatten()
            if flat.null_count or pc.min(flat).as_py() < 0 or pc.max(flat).as_py() >= 2**32:
                raise UserError(
                    f"{path}, rows from {first}: a token id is missing, negative or above 32 bits; correct it"
                )
            tokens = flat.to_numpy().astype(np.int64).reshape(-1, long_tokens)
            yield path.name, first, tokens
            first += len(tokens)
