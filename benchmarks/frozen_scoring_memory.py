"""Does memory stay flat as the corpus grows? Peak memory of chunking, frozen scoring and reading the score store.

    python benchmarks/frozen_scoring_memory.py --out frozen_scoring_memory.json

Two sizes of the synthetic novel, the shipped base as scorer, on a CPU. Every phase runs in a process of its own, whose
peak resident memory the kernel keeps; the peak of anonymous memory, what the process itself holds, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory import in_fresh_process, machine, measured

LONG_TOKENS, SHORT_TOKENS, STRIDE_TOKENS = 1024, 256, 192
DOCUMENT_TOKENS = 16_500


def main() -> None:
    """Run every phase at every size, print the table, write the JSON."""
    args = _arguments()
    if args.phase:
        print(json.dumps(measured(lambda: PHASES[args.phase](args.folder, args.sequences), args.folder)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="frozen-scoring-memory-") as folder:
        for factor in (1, args.factor):
            work = Path(folder) / f"x{factor}"
            work.mkdir()
            for phase in PHASES:
                sequences = str(args.sequences * factor)
                row = in_fresh_process(__file__, "--phase", phase, "--folder", str(work), "--sequences", sequences)
                rows.append({"phase": phase, "sequences": args.sequences * factor, **row})
                print(rows[-1], flush=True)
            shutil.rmtree(work)
    result = {"machine": machine(), "long_tokens": LONG_TOKENS, "rows": rows, "ratios": ratios(rows)}
    print("\n" + table(rows))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


# --- The phases --------------------------------------------------------------------------------------


def chunk(folder: Path, sequences: int) -> None:
    """From the novel's text to token rows on disk."""
    from tokenweight.assets import smoke_base_dir
    from tokenweight.corpus.stages import Chunk
    from tokenweight.progress import no_progress
    from tokenweight.recipes.schema import Chunking, Execution, NovelCorpus

    documents = -(-sequences // 12) + 2  # a book gives 13 to 16 sequences
    corpus = NovelCorpus(seed=7, documents=documents, document_tokens=DOCUMENT_TOKENS, validation_documents=1)
    chunking = Chunking(long_tokens=LONG_TOKENS, sequences=sequences)
    stage = Chunk(corpus=corpus, chunking=chunking, short_tokens=SHORT_TOKENS)
    stage.run({"tokenizer": smoke_base_dir()}, folder / "chunks", Execution(), no_progress)


def score(folder: Path, sequences: int) -> None:
    """Short-context NLL of every sequence by the frozen shipped base."""
    from tokenweight.assets import smoke_base_dir
    from tokenweight.progress import no_progress
    from tokenweight.recipes.schema import Execution
    from tokenweight.training.stages import Score

    stage = Score(short_tokens=SHORT_TOKENS, stride_tokens=STRIDE_TOKENS, sequences=sequences, precision="fp32")
    base, chunks = smoke_base_dir(), folder / "chunks"
    inputs = {"model": base, "tokenizer": base, "chunks": chunks}
    stage.run(inputs, folder / "scores", Execution(device="cpu", micro_batch_sequences=4), no_progress)


def read(folder: Path, sequences: int) -> None:
    """Every row, as training reads it: token ids and scores."""
    import numpy as np

    from tokenweight.training.sequences import TrainingRows, open_scores, open_tokens

    scores = open_scores(folder / "scores", sequences)
    rows = TrainingRows(open_tokens(folder / "chunks"), sequences, 4096, scores)
    total = sum(float(np.asarray(rows[i]["short_nll"]).sum(dtype=np.float64)) for i in range(sequences))
    assert total / (sequences * (LONG_TOKENS - 1)) < 9, "nats a token, worse than chance"


PHASES: dict[str, Callable[[Path, int], None]] = {"chunk": chunk, "score": score, "read": read}


# --- The table --------------------------------------------------------------------------------------


def ratios(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By phase: how many times as much as at the first size."""
    first, last = rows[: len(PHASES)], rows[-len(PHASES) :]
    keys = ("sequences", "disk_mib", "peak_rss_mib", "peak_anonymous_mib")
    return {b["phase"]: {key: round(b[key] / a[key], 3) for key in keys} for a, b in zip(first, last, strict=True)}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per phase and size, the ratio of the two sizes behind."""
    lines = [
        "| phase | sequences | on disk MiB | peak RSS MiB | peak anonymous MiB | seconds | RSS ratio | anonymous ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for phase, ratio in ratios(rows).items():
        for row in (r for r in rows if r["phase"] == phase):
            keys = ("sequences", "disk_mib", "peak_rss_mib", "peak_anonymous_mib", "seconds")
            is_last = row["sequences"] == rows[-1]["sequences"]
            ends = (ratio["peak_rss_mib"], ratio["peak_anonymous_mib"]) if is_last else ("", "")
            lines.append("| " + " | ".join(map(str, (phase, *(row[key] for key in keys), *ends))) + " |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=256, help="at the smaller size")
    parser.add_argument("--factor", type=int, default=8, help="how many times as many at the larger size")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
