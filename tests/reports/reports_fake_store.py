"""A store of small artifacts, and the manifest that belongs to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.experiment import Experiment, Lengths
from tokenweight.pipeline.manifest import Manifest, RowEntry, UnitEntry
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import paper_cells
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.labels import experiment_at

LENGTHS = (1024, 2048, 3072, 4096)
RULER_TASKS = tuple(f"task_{i:02d}" for i in range(13))
MMLU_SUBJECTS = ("anatomy", "virology")
SHORT_CONTEXT_ROWS = ("no-train-8k", "no-train-2k")

AT = Lengths(ruler=LENGTHS, longbench_split=1024)
# Full, then by category.
LONGBENCH = {column.key: column.measure.tasks for column in experiment_at(get_target("table-8"), AT).columns}
LONGBENCH_TASKS = LONGBENCH.pop("longbench")

Scores = Callable[[str, str, str, int | None], list[float]]  # (row, benchmark, task, length) -> scores


def constant_scores(row: str, benchmark: str, task: str, length_tokens: int | None) -> list[float]:
    """Four samples that differ by row, so that every column has one largest value."""
    level = int(hashlib.sha256(f"{row}/{benchmark}".encode()).hexdigest()[:4], 16) / 0xFFFF
    return [0.0, 1.0, round(level, 3), round(level / 2, 3)]


def paper_table(table: str) -> dict[tuple[str, str], PaperNumber]:
    """What the paper prints in a table, by row and column."""
    places = {place: number for place, number in paper_cells().items() if place.startswith(f"{table}/")}
    return {(row, column): number for (_, row, column), number in ((p.split("/"), n) for p, n in places.items())}


def manifest_of(
    experiment: str | Experiment, rows: Iterable[RowEntry], lengths: Lengths = AT, **overrides: Any
) -> Manifest:
    """The manifest of an experiment, or of a target by its name."""
    if isinstance(experiment, str):
        experiment = experiment_at(get_target(experiment), lengths)
    values: dict[str, Any] = {
        "scale": "smoke",
        "about": "A fake.",
        "command": f"tokenweight reproduce {experiment.name} --scale smoke",
    }
    return Manifest(**({"experiment": experiment, "lengths": lengths, "rows": tuple(rows)} | values | overrides))


@dataclass
class FakeStore:
    """Writes artifacts below `root`; `entries` collects what the manifest says of them."""

    root: Path
    entries: dict[str, list[UnitEntry]] = field(default_factory=dict)

    def add(
        self,
        row: str,
        unit: str,
        scores: list[float] | None,
        *,
        n_expected: int | None = None,
        tokens: list[int] | None = None,
        words: list[int] | None = None,
        tolerant: list[float | None] | None = None,
        record: dict[str, Any] | None = None,
        flags: list[str] | None = None,
        summary_n_expected: int | None = None,
        doc_ids: list[int] | None = None,
        reference: str = '["ref"]',
        prompt_sha256: str = "0",
    ) -> Path:
        """One unit; scores None leaves it out of the store. `record` overrides parts of record.json."""
        benchmark, task, *rest = unit.split("/")
        fingerprint = hashlib.sha256(f"{row}|{unit}".encode()).hexdigest()
        address = f"evaluate/{row}--{unit.replace('/', '-')}-{fingerprint[:8]}"
        self.entries.setdefault(row, []).append(
            UnitEntry(
                unit=unit,
                benchmark=benchmark,
                task=task,
                length_tokens=int(rest[0]) if rest else None,
                address=address,
                fingerprint=fingerprint,
                n_expected=n_expected,
            )
        )
        directory = self.root / address
        if scores is not None:
            directory.mkdir(parents=True)
            n = len(scores)
            columns = {
                "doc_id": pa.array(doc_ids or range(n), pa.int64()),
                "prompt_sha256": pa.array([prompt_sha256] * n),
                "n_prompt_tokens": pa.array([10] * n, pa.int64()),
                "untruncated_tokens": pa.array(tokens or [None] * n, pa.int64()),
                "truncated": pa.array([False] * n),
                "length_words": pa.array(words or [None] * n, pa.int64()),
                "output": pa.array(["out"] * n),
                "filtered": pa.array(["out"] * n),
                "reference": pa.array([reference] * n),
                "metric": pa.array(["recall"] * n),
                "score": pa.array(scores, pa.float64()),
                "tolerant_score": pa.array(tolerant or [None] * n, pa.float64()),
            }
            pq.write_table(pa.table(columns), directory / "rows.parquet")
            summary = {"n": len(scores), "flags": flags or [], "n_expected": summary_n_expected}
            (directory / "summary.json").write_text(json.dumps(summary))
            seal(directory, _record(fingerprint, unit) | (record or {}))
        return directory

    def manifest(self, target: str = "table-3", **overrides: Any) -> Manifest:
        """The manifest of all that was added, rows in the target's order."""
        rows = [
            RowEntry(row=row.key, recipe=row.recipe, units=tuple(self.entries[row.key]))
            for row in get_target(target).rows
            if row.key in self.entries
        ]
        return manifest_of(target, rows, **overrides)

    def shown_in(self, target: str) -> Manifest:
        """The manifest of another target, from the units that Table 3's rows have."""
        entries = {entry.recipe: entry for entry in self.manifest().rows}
        shown = [row for row in get_target(target).rows if row.recipe in entries]
        return manifest_of(target, [entries[row.recipe].model_copy(update={"row": row.key}) for row in shown])

    def fill(self, target: str = "table-3", scores: Scores = constant_scores, n_expected: int | None = 4) -> None:
        """Every unit that the rows of Tables 3, 8, 9 and 10 have."""
        for row in get_target(target).rows:
            for benchmark, task, length in all_units(row.key in SHORT_CONTEXT_ROWS):
                unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
                values = scores(row.key, benchmark, task, length)
                tokens = [900, 1024, 1025, 5000] if benchmark == "longbench" and len(values) == 4 else None
                self.add(row.key, unit, values, n_expected=n_expected, tokens=tokens)


def all_units(short_context: bool) -> list[tuple[str, str, int | None]]:
    """(benchmark, task, length) of one model."""
    lengths = LENGTHS[:1] if short_context else LENGTHS
    return [
        *(("ruler", task, length) for length in lengths for task in RULER_TASKS),
        *(("longbench", task, None) for task in LONGBENCH_TASKS),
        *(("mmlu", subject, None) for subject in MMLU_SUBJECTS),
        ("bbh", "navigate", None),
        *(("perplexity", "validation", length) for length in lengths),
    ]


def seal(directory: Path, record: dict[str, Any] | None = None) -> None:
    """Write a record (the one that is there unless given) with the sizes and digests of what lies beside it."""
    record = record or json.loads((directory / "record.json").read_text())
    outputs = {
        file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
        for file in directory.iterdir()
        if file.name != "record.json"
    }
    (directory / "record.json").write_text(json.dumps(record | {"outputs": outputs}))


def _record(fingerprint: str, unit: str) -> dict[str, Any]:
    return {
        "stage": "evaluate",
        "stage_version": 1,
        "fingerprint": fingerprint,
        "config": {
            "unit": dict(zip(("benchmark", "task", "length_tokens"), unit.split("/"), strict=False)),
            "protocol": {"metric": "recall", "first_line": "lceg"},
            "evaluation": {"mmlu": {"data": "sha256:abc"}},
        },
        "inputs": {},
        "versions": {"lm-eval": "0.4.13"},
    }
