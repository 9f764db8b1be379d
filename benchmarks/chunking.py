"""Chunking against a straightforward list-based way: tokens a second and peak memory, on the same text.

    python benchmarks/chunking.py [--books DIR] [--tokenizer DIR] [--documents 8,32] [--out FILE.json]

The list-based way tokenises each document whole, keeps Python lists of ids, cuts them by slicing and makes one array at
the end. Each way runs in a process of its own at each size, and both must give the same sequences. Without --books the
text is the synthetic novel's, written to files first: making text is not part of what is timed, nor are imports.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter


class Clock:
    """Seconds spent inside the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its wall time added up."""

        def wrapper(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds += time.perf_counter() - began

        return wrapper


def chunked(corpus: Any, tokenizer_dir: Path, long_tokens: int, out_dir: Path, clock: Clock) -> int:
    """The project's chunking; returns how many tokens the corpus has."""
    from tokenweight.corpus import encoding
    from tokenweight.corpus.stages import Chunk
    from tokenweight.progress import no_progress
    from tokenweight.recipes.schema import Chunking, Execution

    encoding.ids_of = clock.timed(encoding.ids_of)
    stage = Chunk(corpus=corpus, chunking=Chunking(long_tokens=long_tokens))
    accounting = stage.run({"tokenizer": tokenizer_dir}, out_dir, Execution(), no_progress)
    return int(accounting["tokens"])


def listed(corpus: Any, tokenizer_dir: Path, long_tokens: int, out_dir: Path, clock: Clock) -> int:
    """The straightforward way: everything in lists; returns how many tokens the corpus has."""
    import numpy as np
    from transformers import AutoTokenizer

    from tokenweight.corpus.sources import documents

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    encode = clock.timed(tokenizer)
    adds_bos = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
    front = [tokenizer.bos_token_id] if adds_bos else []
    texts = [document.text for document in documents(corpus, "train")]
    books = [encode(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    payload = long_tokens - len(front)
    rows = []
    for ids in books:
        # Every token but a document's first is predicted once: without BOS neighbours share one token.
        for start in range(0, len(ids) - payload + 1, long_tokens - 1):
            rows.append(front + ids[start : start + payload])
    out_dir.mkdir(parents=True)
    np.save(out_dir / "tokens.npy", np.array(rows, np.uint32))
    return sum(map(len, books))


WAYS = {"list-based": listed, "chunk": chunked}


def measure(way: str, corpus_dir: Path, tokenizer_dir: Path, long_tokens: int, out_dir: Path) -> dict[str, Any]:
    """Seconds, tokens, and the process's peak memory (MiB, whole and above what imports took)."""
    import pandas  # noqa: F401  (imported now, for both ways: pyarrow looks for it)
    import pyarrow.parquet  # noqa: F401
    from transformers import AutoTokenizer

    from tokenweight.recipes.schema import FilesCorpus

    AutoTokenizer.from_pretrained(str(tokenizer_dir))  # imports its modules
    corpus = FilesCorpus(path=str(corpus_dir), validation_documents=1)
    before, clock = _peak_mib(), Clock()
    began, cpu = time.perf_counter(), time.process_time()
    tokens = WAYS[way](corpus, tokenizer_dir, long_tokens, out_dir, clock)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    peak = _peak_mib()
    return {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "tokenizer_seconds": clock.seconds,
        "peak_mib": peak,
        "grown_mib": peak - before,
        "sequences_sha256": _digest(out_dir / "tokens.npy"),
    }


def _digest(path: Path) -> str:
    """Of the sequences as a set: chunking shuffles them."""
    import numpy as np

    rows = sorted(hashlib.sha256(row.tobytes()).digest() for row in np.load(path, mmap_mode="r"))
    return hashlib.sha256(b"".join(rows)).hexdigest()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux


def write_corpus(books: Path | None, documents: int, folder: Path) -> None:
    """`documents` + 1 text files (the last of a shuffle is validation): the first of `books`, or novels."""
    folder.mkdir()
    if books is None:
        from tokenweight.corpus import novel

        for i, book in enumerate(novel.books(0, "train", documents + 1, 200_000)):
            (folder / f"{i:04d}.txt").write_text(book.text, encoding="utf-8")
        return
    found = sorted(books.glob("*.txt"))
    if len(found) <= documents:
        raise SystemExit(f"--books: {books} has {len(found)} .txt files; {documents + 1} are needed")
    for path in found[: documents + 1]:
        shutil.copyfile(path, folder / path.name)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per size and way, chunking's ratios to the list-based way behind."""
    lines = [
        "| documents | way | tokens | seconds | CPU seconds | in the tokenizer | tokens/s | peak MiB | above imports "
        "| x tokens/s | x CPU | x outside the tokenizer |",
        "| ---: | --- |" + " ---: |" * 10,
    ]
    baseline: dict[int, dict[str, Any]] = {row["documents"]: row for row in rows if row["way"] == "list-based"}
    for row in rows:
        base = baseline[row["documents"]]
        ratio = base["seconds"] / row["seconds"]
        outside = _outside(base) / _outside(row)
        cells = [
            row["documents"], row["way"], row["tokens"], f"{row['seconds']:.2f}", f"{row['cpu_seconds']:.2f}",
            f"{row['tokenizer_seconds']:.2f}",
            f"{row['tokens'] / row['seconds']:,.0f}", f"{row['peak_mib']:.0f}", f"{row['grown_mib']:.0f}",
            f"{ratio:.2f}", f"{base['cpu_seconds'] / row['cpu_seconds']:.2f}", f"{outside:.2f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _outside(row: dict[str, Any]) -> float:
    return float(row["seconds"] - row["tokenizer_seconds"])


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((s.partition(":")[2].strip() for s in lines if s.startswith("model name")), platform.machine())


def main(
    books: Annotated[Path | None, Parameter(help="Directory of .txt files; the synthetic novel if absent.")] = None,
    tokenizer: Annotated[Path | None, Parameter(help="Tokenizer directory; the shipped one if absent.")] = None,
    documents: Annotated[str, Parameter(help="Corpus sizes.")] = "8,32",
    long_tokens: int = 32_768,
    repeats: Annotated[int, Parameter(help="Runs of each way, in turn; the median by seconds counts.")] = 3,
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
    way: Annotated[str, Parameter(show=False)] = "",
    folder: Annotated[Path | None, Parameter(show=False)] = None,
) -> None:
    """Measure both ways at every size, print one table, write JSON."""
    from tokenweight.assets import smoke_base_dir

    tokenizer_dir = tokenizer or smoke_base_dir()
    if way and folder:
        print(json.dumps(measure(way, folder / "text", tokenizer_dir, long_tokens, folder / way)))
        return
    rows: list[dict[str, Any]] = []
    for size in map(int, documents.split(",")):
        with tempfile.TemporaryDirectory(prefix="chunking-") as work:
            write_corpus(books, size, Path(work) / "text")
            measured: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
            for name in list(WAYS) * repeats:
                shutil.rmtree(Path(work) / name, ignore_errors=True)
                command = [sys.executable, __file__, "--way", name, "--folder", work, "--tokenizer", str(tokenizer_dir)]
                command += ["--long-tokens", str(long_tokens)]
                ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
                measured[name].append({"documents": size, "way": name, **json.loads(ran.stdout.splitlines()[-1])})
                print(measured[name][-1], file=sys.stderr, flush=True)
            if len({run["sequences_sha256"] for runs in measured.values() for run in runs}) > 1:
                raise SystemExit(f"{size} documents: the two ways gave different sequences")
            for runs in measured.values():
                median = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
                rows.append(median | {"all_seconds": [run["seconds"] for run in runs]})
    print(table(rows))
    if out:
        versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "transformers", "numpy")}
        machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
        content = {
            "machine": machine | versions, "tokenizer": tokenizer_dir.name, "text": "books" if books else "novel",
            "long_tokens": long_tokens, "rows": rows,
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cyclopts.run(main)
