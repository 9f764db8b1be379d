"""A few samples of each unit: what was asked, what the model said, what it got for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.reports.html.artifacts import Artifacts, mapping
from tokenweight.reports.html.text import excerpt

PAGE_CHARACTERS = 2_000_000  # of samples on a page; a unit's second sample is the first to be left out
_PROMPT = (600, 600)  # characters of its beginning and end
_OUTPUT = (400, 200)
_SHORT = (300, 0)  # filtered output and reference
_COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "truncated", "output", "filtered", "reference", "metric", "score",
]  # fmt: skip

Excerpt = list[str | int]


@dataclass
class Samples:
    """Chosen samples by the unit's address, the prompts that they share, and how many the page had no room for."""

    by_unit: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    prompts: list[Excerpt] = field(default_factory=list)
    left_out: int = 0


def choose_samples(addresses: Sequence[str], artifacts: Artifacts) -> Samples:
    """Of each unit the first sample with the lowest score and the first with the highest; one where all are equal."""
    with ThreadPoolExecutor() as pool:
        read = pool.map(_extremes, (artifacts.root / address for address in addresses))
        rows = {address: chosen for address, chosen in zip(addresses, read, strict=True) if chosen}
    prepared = {address: _prepared(address, artifacts) for address in rows}
    wanted: dict[str, set[int]] = {}
    for address, chosen in rows.items():
        if source := prepared[address]:
            wanted.setdefault(source, set()).update(row["doc"] for row in chosen)
    prompts = {source: _read_prompts(artifacts.root / source, docs) for source, docs in wanted.items()}
    samples, numbers, spent = Samples(), dict[tuple[str, int], int](), 0
    for rank in range(2):
        for address, chosen in rows.items():
            for row in chosen[rank : rank + 1]:
                place = (prepared[address] or "", row["doc"])
                digest, prompt = prompts.get(place[0], {}).get(place[1], ("", []))
                asked = prompt if digest == row["sha256"] else []
                cost = _characters(row["output"]) + _characters(row["filtered"]) + _characters(row["reference"])
                cost += 0 if place in numbers else _characters(asked)
                if spent + cost > PAGE_CHARACTERS:
                    samples.left_out += 1
                    continue
                spent += cost
                if asked:
                    if place not in numbers:
                        numbers[place] = len(samples.prompts)
                        samples.prompts.append(asked)
                    row["prompt"] = numbers[place]
                samples.by_unit.setdefault(address, []).append(row)
    return samples


def _characters(text: Excerpt) -> int:
    return sum(len(str(part)) for part in text)


def _extremes(directory: Path) -> list[dict[str, Any]]:
    """The chosen rows of one unit; [] where none can be read, or nothing is asked of the model (perplexity, PMI)."""
    try:
        # As a memory map: opening a path takes longer than reading so small a file.
        with pa.memory_map(str(directory / "rows.parquet")) as source:
            table = pq.ParquetFile(source).read(columns=_COLUMNS, use_threads=False)
        table = table.take(np.argsort(table["doc_id"].to_numpy(), kind="stable"))
        scores = table["score"].cast(pa.float64()).to_numpy()
        if not len(table) or not np.all(np.isfinite(scores)):
            return []
        rows = table.take(list(dict.fromkeys((int(np.argmin(scores)), int(np.argmax(scores)))))).to_pylist()
        return [
            {
                "doc": int(row["doc_id"]),
                "score": float(row["score"]),
                "metric": str(row["metric"]),
                "tokens": row["n_prompt_tokens"],
                "truncated": bool(row["truncated"]),
                "sha256": str(row["prompt_sha256"]),
                "output": excerpt(str(row["output"]), *_OUTPUT),
                "filtered": excerpt(str(row["filtered"]), *_SHORT),
                "reference": excerpt(str(row["reference"]), *_SHORT),
            }
            for row in rows
            if row["reference"] != "[]"
        ]
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return []


def _prepared(address: str, artifacts: Artifacts) -> str | None:
    """Address of the artifact that holds the unit's prompts, where the store has it."""
    fingerprint = mapping(artifacts.records[address].get("inputs")).get("prepared")
    return artifacts.address_of(fingerprint) if fingerprint else None


def _read_prompts(prepared: Path, docs: set[int]) -> dict[int, tuple[str, Excerpt]]:
    """(SHA-256, excerpt) of prompts by doc_id, as far as they can be read; the file is read to the last of `docs`."""
    found = {}
    try:
        with (prepared / "prompts.jsonl").open("rb") as lines:
            for doc, line in enumerate(lines):  # they lie in the order of their doc_id
                if doc in docs:
                    text = json.loads(line)["prompt"]
                    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                    found[doc] = digest, excerpt(text, *_PROMPT)
                if doc >= max(docs):
                    break
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return found
