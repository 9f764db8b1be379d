"""Time to render Table 3 with all its statistics from records at the paper's size, on this machine.

    python benchmarks/rendering.py --out benchmarks/results/DATE-rendering.json

Makes a store of random scores first: 8 models, RULER's 13 tasks at 4 lengths with 500 samples each, 16 LongBench tasks
with 200, MMLU's 14,042 questions in 57 subjects, BBH's 27 tasks with 250, 50 documents of perplexity at 4 lengths.
Then renders each target that these models fill, in a process of its own as a user's command would, and says how long
building and writing took, and how long importing the code. On a machine that does other work too (see load_average),
the processor's seconds say more than those of the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.experiment import PAPER_LENGTHS
from tokenweight.pipeline.manifest import Manifest, RowEntry, UnitEntry
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.labels import experiment_at

LENGTHS_TOKENS = (8192, 16384, 24576, 32768)
MMLU_SUBJECTS, MMLU_QUESTIONS = 57, 14_042
TARGETS = ("table-3", "table-8", "table-9", "table-10")

RENDER = """
import json, sys, time
from pathlib import Path
started = time.perf_counter()
from tokenweight.reports.build import build_report
from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.writing import write_report
imported = time.perf_counter()
root, out = Path(sys.argv[1]), Path(sys.argv[2])
targets = {}
for name in sys.argv[3:]:
    manifest = Manifest.model_validate_json((root / f"{name}.json").read_text())
    begun, processor = time.perf_counter(), time.process_time()
    report = build_report(manifest, root)
    built = time.perf_counter()
    write_report(report, out)
    targets[name] = {
        "build": round(built - begun, 3),
        "write": round(time.perf_counter() - built, 3),
        "processor_seconds": round(time.process_time() - processor, 3),
    }
print(json.dumps({"import": round(imported - started, 3), "targets": targets}))
"""


def main() -> None:
    """Make the store, render, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="processes per target; the fastest counts")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        samples = make_store(root)
        result = {
            "what": "seconds to render targets from records at the paper's size; the fastest process",
            "processor_cores": os.cpu_count(),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            "python": platform.python_version(),
            "models": len(get_target("table-3").rows),
            "units": len(list((root / "evaluate").iterdir())),
            "samples": samples,
            "repeats": arguments.repeats,
            "each_alone": {name: fastest(root, (name,), arguments.repeats) for name in TARGETS},
            "all_in_one_process": fastest(root, TARGETS, arguments.repeats),
        }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


def fastest(root: Path, targets: tuple[str, ...], repeats: int) -> dict[str, Any]:
    """The run of least wall time: whole process, import, and build and write of each target, in seconds."""
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        command = [sys.executable, "-c", RENDER, str(root), str(root / "out"), *targets]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append({"process": round(time.perf_counter() - started, 3), **json.loads(done.stdout)})
    return min(runs, key=lambda run: float(run["process"]))


def make_store(root: Path) -> int:
    """Write artifacts of random scores and a manifest per target; returns how many samples there are."""
    units = paper_units()
    entries = {
        row.key: tuple(write_unit(root, row.key, unit, n) for unit, n in units.items())
        for row in get_target("table-3").rows
    }
    for name in TARGETS:
        rows = (
            RowEntry(row=row.key, recipe=row.recipe or row.key, units=entries[row.key]) for row in get_target(name).rows
        )
        manifest = Manifest(
            experiment=experiment_at(get_target(name), PAPER_LENGTHS),
            scale="paper",
            lengths=PAPER_LENGTHS,
            about="",
            command="",
            rows=tuple(rows),
        )
        (root / f"{name}.json").write_text(manifest.model_dump_json())
    return len(entries) * sum(units.values())


def paper_units() -> dict[str, int]:
    """Unit -> samples, of one model."""
    longbench = experiment_at(get_target("table-8"), PAPER_LENGTHS).columns[0].measure
    assert isinstance(longbench, TaskMean)
    assert longbench.tasks
    sizes = [len(part) for part in np.array_split(np.arange(MMLU_QUESTIONS), MMLU_SUBJECTS)]
    return {
        **{f"ruler/task_{task:02d}/{n}": 500 for n in LENGTHS_TOKENS for task in range(13)},
        **{f"longbench/{task}": 200 for task in longbench.tasks},
        **{f"mmlu/subject_{subject:02d}": size for subject, size in enumerate(sizes)},
        **{f"bbh/task_{task:02d}": 250 for task in range(27)},
        **{f"perplexity/validation/{n}": 50 for n in LENGTHS_TOKENS},
    }


def write_unit(root: Path, row: str, unit: str, n: int) -> UnitEntry:
    """One artifact as the evaluation writes it: scores of its own, the same questions as every model's."""
    benchmark, task, *rest = unit.split("/")
    fingerprint = hashlib.sha256(f"{row}|{unit}".encode()).hexdigest()
    address = f"evaluate/{row}--{unit.replace('/', '-')}-{fingerprint[:8]}"
    directory = root / address
    directory.mkdir(parents=True)
    tokens = [1000 + 40_000 * i // n for i in range(n)] if benchmark == "longbench" else [None] * n
    random = np.random.default_rng(int(fingerprint[:8], 16))
    pq.write_table(rows_table(benchmark, tokens, random), directory / "rows.parquet")
    (directory / "summary.json").write_text(json.dumps({"n": n, "n_expected": n, "flags": []}))
    record = {
        "stage": "evaluate",
        "stage_version": 1,
        "fingerprint": fingerprint,
        "config": {"unit": unit, "protocol": {"metric": "score"}},
        "inputs": {},
        "outputs": {
            file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)} for file in directory.iterdir()
        },
        "versions": {"lm-eval": "0.4.13"},
        "git": {"commit": "0" * 40, "dirty": False},
    }
    (directory / "record.json").write_text(json.dumps(record))
    return UnitEntry(
        unit=unit,
        benchmark=benchmark,
        task=task,
        length_tokens=int(rest[0]) if rest else None,
        address=address,
        fingerprint=fingerprint,
        n_expected=n,
    )


def rows_table(benchmark: str, tokens: list[Any], random: np.random.Generator) -> pa.Table:
    """Samples, one per length in tokens, with an answer of some words each."""
    n = len(tokens)
    scores = {
        "ruler": random.integers(0, 5, n) / 4,
        "longbench": np.where(random.random(n) < 0.3, 0, random.random(n)),
        "perplexity": random.normal(2.2, 0.2, n),
    }.get(benchmark, random.integers(0, 2, n).astype(float))
    answer = "a few words of an answer " * 8
    return pa.table(
        {
            "doc_id": pa.array(range(n), pa.int64()),
            "prompt_sha256": pa.array([hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)]),
            "n_prompt_tokens": pa.array([8000] * n, pa.int64()),
            "untruncated_tokens": pa.array(tokens, pa.int64()),
            "truncated": pa.array([False] * n),
            "length_words": pa.array([None] * n, pa.int64()),
            "output": pa.array([answer] * n),
            "filtered": pa.array([answer] * n),
            "reference": pa.array([f'["reference {i}"]' for i in range(n)]),
            "metric": pa.array(["score"] * n),
            "score": pa.array(scores, pa.float64()),
            "tolerant_score": pa.array([None] * n, pa.float64()),
        }
    )


if __name__ == "__main__":
    main()
