"""Does memory stay flat as texts grow? Peak memory of perplexity and of the PMI, as an evaluation runs them.

    python benchmarks/evaluation_memory.py --out evaluation_memory.json

The shipped base on a CPU, three sets of validation documents: few short ones, eight times as many, and as few that are
eight times as long. Every run in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from memory import in_fresh_process, machine, measured

CONTEXT_TOKENS, SHORT_TOKENS, STRIDE_TOKENS = 1024, 256, 192
DOCUMENTS, DOCUMENT_TOKENS, FACTOR = 2, 16_000, 8
# name: (documents, tokens of each)
SIZES = {
    "1x": (DOCUMENTS, DOCUMENT_TOKENS),
    f"{FACTOR}x documents": (DOCUMENTS * FACTOR, DOCUMENT_TOKENS),
    f"{FACTOR}x as long": (DOCUMENTS, DOCUMENT_TOKENS * FACTOR),
}
BENCHMARKS = ("perplexity", "pmi")


def main() -> None:
    """Run both benchmarks at every size, print the table, write the JSON."""
    args = _arguments()
    if args.benchmark:
        work = args.folder / f"{args.benchmark}"
        print(json.dumps(measured(lambda: evaluate_at(args.benchmark, args.size, args.folder, work), work)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="evaluation-memory-") as folder:
        for size, (documents, tokens) in SIZES.items():
            place = Path(folder) / size.replace(" ", "-")
            characters = write_texts(place / "texts", documents, tokens)
            for benchmark in BENCHMARKS:
                row = in_fresh_process(__file__, "--benchmark", benchmark, "--size", size, "--folder", str(place))
                rows.append({"benchmark": benchmark, "texts": size, "characters": characters, **row})
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


def evaluate_at(benchmark: str, size: str, folder: Path, out_dir: Path) -> None:
    """Evaluate the shipped base on the texts."""
    from tokenweight.corpus.assets import smoke_base_dir
    from tokenweight.evaluation.run import Job, evaluate
    from tokenweight.evaluation.units import units
    from tokenweight.recipes import load
    from tokenweight.recipes.schema import Execution, FilesCorpus, Perplexity, Pmi

    corpus = FilesCorpus(path=str(folder / "texts"), validation_documents=SIZES[size][0])
    settings = load("table-3/uniform", "smoke").recipe.evaluation.model_copy(
        update={
            "perplexity": Perplexity(lengths_tokens=(512, CONTEXT_TOKENS), corpus=corpus),
            "pmi": Pmi(short_tokens=SHORT_TOKENS, stride_tokens=STRIDE_TOKENS),
        }
    )
    jobs = [Job(unit, (), out_dir / unit.id) for unit in units(benchmark, settings, CONTEXT_TOKENS)]
    for _ in evaluate(smoke_base_dir(), jobs, settings, CONTEXT_TOKENS, Execution(device="cpu")):
        pass


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per benchmark and size, with the ratio to the first size."""
    lines = [
        "| | texts | characters | on disk KiB | peak RSS MiB | peak anonymous MiB | seconds | anonymous ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for benchmark in BENCHMARKS:
        own = [row for row in rows if row["benchmark"] == benchmark]
        for row in own:
            ratio = row["peak_anonymous_mib"] / own[0]["peak_anonymous_mib"]
            values = (
                benchmark, row["texts"], row["characters"], round(row["disk_mib"] * 1024), row["peak_rss_mib"],
                row["peak_anonymous_mib"], row["seconds"], "" if row is own[0] else f"{ratio:.3f}",
            )  # fmt: skip
            lines.append("| " + " | ".join(map(str, values)) + " |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--benchmark", choices=BENCHMARKS, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
