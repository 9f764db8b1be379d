"""Does memory stay flat as texts grow? Peak memory of perplexity and of the PMI, as an evaluation runs them.

    python benchmarks/evaluation_memory.py --out evaluation_memory.json

The shipped base on a CPU, three sets of validation documents: few short ones, eight times as many, and as few that are
eight times as long. Every run in a process of its own. `--only perplexity --documents 24` begins where what a process
takes for its first documents is behind it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from memory import in_fresh_process, machine, measured

CONTEXT_TOKENS, SHORT_TOKENS, STRIDE_TOKENS = 1024, 256, 192
DOCUMENT_TOKENS, FACTOR = 16_000, 8
BENCHMARKS = ("perplexity", "pmi")
# name: by how many times there are more documents, and longer ones
SIZES = {"1x": (1, 1), f"{FACTOR}x documents": (FACTOR, 1), f"{FACTOR}x as long": (1, FACTOR)}


def main() -> None:
    """Run both benchmarks at every size, print the table, write the JSON."""
    args = _arguments()
    if args.benchmark:
        work = args.folder / args.benchmark
        print(json.dumps(measured(lambda: evaluate_at(args.benchmark, args.documents, args.folder, work), work)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="evaluation-memory-") as folder:
        for size, (more, longer) in SIZES.items():
            place, documents = Path(folder) / size.replace(" ", "-"), args.documents * more
            characters = write_texts(place / "texts", documents, DOCUMENT_TOKENS * longer)
            for benchmark in args.only or BENCHMARKS:
                what = ("--benchmark", benchmark, "--documents", str(documents), "--folder", str(place))
                row = in_fresh_process(__file__, *what)
                rows.append(
                    {"benchmark": benchmark, "texts": size, "documents": documents, "characters": characters, **row}
                )
                print(rows[-1], flush=True)
    print("\n" + table(rows))
    if args.out:
        result = {"machine": machine(), "context_tokens": CONTEXT_TOKENS, "rows": rows}
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def write_texts(directory: Path, documents: int, tokens: int) -> int:
    """Books of the synthetic novel as .txt, one more than is read: a corpus keeps some for training. Characters of all."""
    from tokenweight.corpus.novel import books

    directory.mkdir(parents=True)
    total = 0
    for number, book in enumerate(books(11, "validation", documents + 1, tokens)):
        (directory / f"{number:04d}.txt").write_text(book.text, encoding="utf-8")
        total += len(book.text)
    return total


def evaluate_at(benchmark: str, documents: int, folder: Path, out_dir: Path) -> None:
    """Evaluate the shipped base on the texts."""
    from tokenweight.assets import smoke_base_dir
    from tokenweight.evaluation.benchmark import UnitRun
    from tokenweight.evaluation.run import evaluate_checkpoint
    from tokenweight.evaluation.units import BENCHMARKS
    from tokenweight.recipes import load
    from tokenweight.recipes.schema import Execution, FilesCorpus, Perplexity, Pmi

    corpus = FilesCorpus(path=str(folder / "texts"), validation_documents=documents)
    settings = load("table-3/uniform", "smoke").evaluation.model_copy(
        update={
            "perplexity": Perplexity(lengths_tokens=(512, CONTEXT_TOKENS), corpus=corpus),
            "pmi": Pmi(short_tokens=SHORT_TOKENS, stride_tokens=STRIDE_TOKENS),
        }
    )
    jobs = [UnitRun(unit, (), out_dir / unit.id) for unit in BENCHMARKS[benchmark].units(settings, CONTEXT_TOKENS)]
    for _ in evaluate_checkpoint(smoke_base_dir(), jobs, settings, CONTEXT_TOKENS, Execution(device="cpu")):
        pass


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per benchmark and size, with the ratio to the first size."""
    lines = [
        "| | texts | documents | characters | on disk KiB | peak RSS MiB | peak anonymous MiB | seconds | anonymous ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        own = [row for row in rows if row["benchmark"] == benchmark]
        for row in own:
            ratio = row["peak_anonymous_mib"] / own[0]["peak_anonymous_mib"]
            values = (
                benchmark, row["texts"], row["documents"], row["characters"], round(row["disk_mib"] * 1024), row["peak_rss_mib"],
                row["peak_anonymous_mib"], row["seconds"], "" if row is own[0] else f"{ratio:.3f}",
            )  # fmt: skip
            lines.append("| " + " | ".join(map(str, values)) + " |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--documents", type=int, default=2, help="at the smaller size")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="one of the two")
    parser.add_argument("--benchmark", choices=BENCHMARKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
