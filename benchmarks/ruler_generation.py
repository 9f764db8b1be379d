"""RULER generation: seconds and fill ratio of each task at one length.

    python benchmarks/ruler_generation.py [--tokenizer DIR] [--length 32768] [--samples 20] [--profile paper] \
        [--haystack DIR] [--squad FILE] [--hotpotqa FILE] [--out FILE.json]

Each task runs in a process of its own, as it would first after a start: finding the size and reading the sources are
timed, imports and loading the tokenizer are not. The seconds of `--full` samples (500) are the time at 3 samples plus
the seconds of each further one, times what is missing: an extrapolation, unless --samples is 500 and the question
files hold as many.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter
from cyclopts.validators import Number

from tokenweight.evaluation.ruler.tasks import TASKS, Profile

FEW = 3  # samples of the run that is all fixed cost


def measure(task: str, length_tokens: int, samples: int, tokenizer_dir: Path, sources: Any, profile: Profile) -> Any:
    """Seconds and fill ratios of one task, in this process."""
    from tokenweight.evaluation.ruler.generator import generate
    from tokenweight.evaluation.ruler.tasks import questions, source_path
    from tokenweight.evaluation.tokens import token_counter

    token_counter(tokenizer_dir)
    if TASKS[task].family == "qa":  # one sample a question: a small file allows no more
        asked: Any = TASKS[task].source
        samples = min(samples, len(questions(asked, source_path(asked, sources))[0]))
        questions.cache_clear()
    began = time.perf_counter()
    rows = generate(task, length_tokens, samples, 42, tokenizer_dir, sources, profile)
    seconds = time.perf_counter() - began
    fill = [row["length"] / length_tokens for row in rows]
    return {"samples": len(rows), "seconds": seconds, "fill_mean": fmean(fill), "fill_min": min(fill)}


def table(rows: list[dict[str, Any]], full: int) -> str:
    """Markdown: one line per task, and the sum."""
    made = f"{full} samples" if all(row["samples"] == full for row in rows) else f"{full} samples, extrapolated"
    lines = [
        f"| task | {FEW} samples, s | samples | s | {made}, s | fill mean | fill min |",
        "| --- |" + " ---: |" * 6,
    ]
    for row in rows:
        cells = [
            row["task"], f"{row['seconds_few']:.2f}", row["samples"], f"{row['seconds']:.2f}",
            f"{row['seconds_full']:.1f}", f"{row['fill_mean']:.4f}", f"{row['fill_min']:.4f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    total = [sum(row[key] for row in rows) for key in ("seconds_few", "seconds", "seconds_full")]
    lines.append(f"| all 13 | {total[0]:.2f} | | {total[1]:.2f} | {total[2]:.1f} | | |")
    return "\n".join(lines)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((s.partition(":")[2].strip() for s in lines if s.startswith("model name")), platform.machine())


def main(
    tokenizer: Annotated[Path | None, Parameter(help="Tokenizer directory; the shipped one if absent.")] = None,
    length: int = 32_768,
    samples: Annotated[int, Parameter(validator=Number(gte=FEW), help="Samples that are timed.")] = 20,
    full: Annotated[int, Parameter(validator=Number(gte=1), help="Samples that the last column is for.")] = 500,
    profile: Profile = "paper",
    haystack: Path | None = None,
    squad: Path | None = None,
    hotpotqa: Path | None = None,
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
    task: Annotated[str, Parameter(show=False)] = "",
) -> None:
    """Measure every task, print one table, write JSON."""
    from tokenweight.assets import smoke_base_dir

    tokenizer_dir = tokenizer or smoke_base_dir()
    if task:
        sources = {"haystack": haystack, "squad": squad, "hotpotqa": hotpotqa}
        print(json.dumps(measure(task, length, samples, tokenizer_dir, sources, profile)))
        return
    rows: list[dict[str, Any]] = []
    given = {"--haystack": haystack, "--squad": squad, "--hotpotqa": hotpotqa}
    paths = [str(part) for option, path in given.items() if path for part in (option, path)]
    for name in TASKS:
        runs = []
        for count in (FEW, samples):
            command = [sys.executable, __file__, "--task", name, "--length", str(length), "--profile", profile, *paths]
            command += ["--tokenizer", str(tokenizer_dir), "--samples", str(count)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            runs.append(json.loads(ran.stdout.splitlines()[-1]))
        few, many = runs
        each = max(0.0, many["seconds"] - few["seconds"]) / max(1, many["samples"] - FEW)
        whole = many["seconds"] + each * (full - many["samples"])
        rows.append({"task": name, **many, "seconds_few": few["seconds"], "seconds_full": whole})
        print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows, full))
    if out:
        versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "transformers", "numpy")}
        machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
        content = {
            "machine": machine | versions, "tokenizer": tokenizer_dir.name, "length_tokens": length,
            "samples": samples, "full": full, "profile": profile, "rows": rows,
        }  # fmt: skip
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cyclopts.run(main)
