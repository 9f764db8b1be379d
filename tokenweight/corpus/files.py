"""A directory of .txt, .jsonl (also .gz and .zst) and .parquet files as a corpus.

A .txt file is one document; a line of .jsonl or a row of .parquet is one, in its field `text`. The first folder
below the corpus directory is the document's domain. Windows line ends become newlines, and a byte order mark goes;
everything else stays as it is: the header and footer of a Project Gutenberg book are content like the rest.
"""

import io
import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

from tokenweight.corpus.documents import Document, Split
from tokenweight.errors import UserError
from tokenweight.pipeline.digests import is_listing, listed_files, refuse_listing
from tokenweight.recipes.schema import FilesCorpus

SUFFIXES = (".txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
TEXT_FIELD = "text"


def list_files(corpus: FilesCorpus) -> list[Path]:
    """The corpus's files, sorted by path; hidden files and other suffixes are left out. Of a list of digests, its files."""
    root = Path(corpus.path)
    if not root.exists():
        raise UserError(f"corpus.path: {corpus.path} does not exist; give a directory of {', '.join(SUFFIXES)} files")
    if is_listing(root):
        everything = sorted(root / name for name in listed_files(root))
    else:
        everything = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
    seen = visible(root, everything)
    found = [p for p in seen if _suffix(p)]
    if not found:
        other = sorted({p.suffix or p.name for p in seen})[:5]
        holds = f"holds only {', '.join(other)}" if other else "is empty"
        raise UserError(f"corpus.path: {corpus.path} {holds}; give a directory of {', '.join(SUFFIXES)} files")
    return found


def left_out(corpus: FilesCorpus) -> list[str]:
    """What lies in the directory and is not read: files of other suffixes, linked folders. Hidden files are not counted."""
    root = Path(corpus.path)
    links = (p for p in root.rglob("*") if p.is_symlink() and p.is_dir())
    others = (p for p in root.rglob("*") if p.is_file() and not _suffix(p))
    return [p.relative_to(root).as_posix() for p in visible(root, sorted([*links, *others]))]


def visible(root: Path, paths: list[Path]) -> list[Path]:
    """Those that are not hidden below `root`, and do not lie in a hidden folder there."""
    return [p for p in paths if not any(part.startswith(".") for part in p.relative_to(root).parts)]


def _suffix(path: Path) -> str:
    """Which of SUFFIXES the name ends in, in capitals too; "" for none."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), "")


def documents(corpus: FilesCorpus, split: Split) -> Iterator[Document]:
    """The documents of one split in the order of files and lines."""
    counts = _counts(corpus)
    chosen, first = _split_numbers(corpus, sum(counts.values()), split), 0
    for path, of_file in counts.items():
        numbers = range(first, first := first + of_file)
        if chosen.isdisjoint(numbers):  # a book that nobody asks for is not read
            continue
        yield from (document for number, document in zip(numbers, _read(corpus, path), strict=True) if number in chosen)


def count(corpus: FilesCorpus, split: Split) -> int:
    return len(_split_numbers(corpus, sum(_counts(corpus).values()), split))


def check(corpus: FilesCorpus) -> None:
    """Read every document once and keep none: UserError for the first that cannot be read, before long work."""
    for path in _counts(corpus):
        for _ in _read(corpus, path):
            pass
    count(corpus, "train")


def _counts(corpus: FilesCorpus) -> dict[Path, int]:
    refuse_listing("corpus.path", Path(corpus.path))
    return {path: _count(path) for path in list_files(corpus)}


def check_split(corpus: FilesCorpus) -> None:
    """UserError where what is kept back leaves nothing to train on; no more documents are counted than that takes."""
    total = 0
    for path in list_files(corpus):
        total += _count(path, corpus.validation_documents + 1)
        if total > corpus.validation_documents:
            return
    _split_numbers(corpus, total, "train")


def _split_numbers(corpus: FilesCorpus, total: int, split: Split) -> frozenset[int]:
    """Numbers of the split's documents: validation is the end of a seeded shuffle (of few documents all), train the rest."""
    border = max(0, total - corpus.validation_documents)
    if split == "train" and not border:
        raise UserError(
            f"corpus.path: {corpus.path} has {total} documents, which leaves none to train on beside "
            f"{corpus.validation_documents} for validation; add documents, or lower corpus.validation_documents and "
            "evaluation.perplexity.corpus.validation_documents"
        )
    numbers = list(range(total))
    Random("validation").shuffle(numbers)
    return frozenset(numbers[border:] if split == "validation" else numbers[:border])


def _count(path: Path, most: int | None = None) -> int:
    """Documents in a file, of lines no more than `most`; UserError where it is empty."""
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; remove it")
    if _suffix(path) == ".txt":
        return 1
    if _suffix(path) == ".parquet":
        return int(open_parquet(path).metadata.num_rows)
    return sum(1 for _ in islice((line for line in _lines(path) if line.strip()), most))


def _read(corpus: FilesCorpus, path: Path) -> Iterator[Document]:
    root = Path(corpus.path)
    relative = path.relative_to(root) if root.is_dir() else Path(path.name)
    name, domain = relative.as_posix(), relative.parts[0] if len(relative.parts) > 1 else ""
    if _suffix(path) == ".txt":
        yield Document(name, _without_nul(decode(path, path.read_bytes()), str(path)), domain)
        return
    unit, rows = ("row", _parquet_rows(path)) if _suffix(path) == ".parquet" else ("line", json_lines(path))
    for number, row in rows:
        text = row.get(TEXT_FIELD) if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise UserError(f"{path}, {unit} {number}: no string in field `{TEXT_FIELD}`; every {unit} needs one")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):04x}"
            raise UserError(
                f"{path}, {unit} {number}: {half} is half of a surrogate pair; correct or remove the {unit}"
            ) from None
        yield Document(f"{name}:{number}", _without_nul(_newlines(text), f"{path}, {unit} {number}"), domain)


def decode(path: Path, raw: bytes, line: int | None = None) -> str:
    """Text of UTF-8 bytes as every corpus has it; `path` and `line` say in a UserError where they come from."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = line or raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {at}: not UTF-8 (byte 0x{raw[error.start]:02x}); convert it, e.g. iconv -f LATIN1 -t UTF-8"
        ) from None
    return _newlines(text)


def _without_nul(text: str, place: str) -> str:
    if (at := text.find("\0")) >= 0:
        raise UserError(f"{place}: character {at} is NUL, which text cannot have; correct or remove it")
    return text


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_of(path: Path) -> Any:
    """What a file of JSON that others wrote holds. UserError: it is none."""
    try:
        return json.loads(decode(path, path.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); give the file as it was published") from None


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Line number and value of each line that is not blank. UserError: the file cannot be read, or a line is no JSON."""
    for line, raw in enumerate(_lines(path), 1):
        if not raw.strip():
            continue
        try:
            row = json.loads(decode(path, raw.rstrip(b"\r\n"), line))
        except (ValueError, RecursionError) as error:  # too deep, or a number of thousands of digits
            raise UserError(
                f"{path}, line {line}: not JSON ({error}); it may be incomplete: write one object a line"
            ) from None
        yield line, row


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or compressed, ended by \\n alone: JSON may hold characters such as U+2028 as they are."""
    packed = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower())
    try:
        with _unpacked(path, packed) if packed else path.open("rb") as file:
            yield from file
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); copy it again") from None


def _unpacked(path: Path, packed: str) -> io.BufferedReader:
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression=packed))


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    columns = open_parquet(path).schema_arrow.names
    if TEXT_FIELD not in columns:
        names = ", ".join(columns)
        raise UserError(f"{path}: no column `{TEXT_FIELD}` (it has {names}); rename the column that holds the text")
    row = 0
    try:
        for row, value in enumerate(chain.from_iterable(parquet_column(path, TEXT_FIELD)), 1):
            yield row, {TEXT_FIELD: value.as_py()}
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, row {row}: not UTF-8 ({error.reason}); write it again as UTF-8") from None


def parquet_column(path: Path, name: str) -> Iterator[Any]:
    """Some rows of a column after the others. UserError: a page is damaged, which its checksum or its codec shows."""
    rows = 0
    try:
        for batch in open_parquet(path).iter_batches(batch_size=64, columns=[name]):
            yield batch.column(0)
            rows += len(batch)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged after row {rows} ({str(error).splitlines()[0]}); copy it again") from None


def open_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, page_checksum_verification=True)  # type: ignore[no-untyped-call]
    except (pa.ArrowException, OSError) as error:  # by which part of the footer is damaged
        raise UserError(f"{path}: not a parquet file ({str(error).splitlines()[0]}); write it again") from None
