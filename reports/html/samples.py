"""A few samples of each unit: what was asked, what the model said, what it got for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenweight.pipeline.store import files_fault
from tokenweight.reports.html.records import Records
from tokenweight.reports.samples import read_rows

PAGE_CHARACTERS = 2_000_000  # of samples on a page; a unit's second sample is the first to be left out
_PROMPT = (600, 600)  # characters of its beginning and end
_OUTPUT = (400, 200)
_SHORT = (300, 0)  # filtered output and reference
_COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "truncated", "output", "filtered", "reference", "metric", "score",
]  # fmt: skip

Excerpt = list[str | int]


def choose_samples(
    addresses: Sequence[str], records: Records
) -> tuple[dict[str, list[dict[str, Any]]], list[Excerpt], int]:
    """Chosen samples by the unit's address, the prompts that they share, and how many the page had no room for.

    Of each unit the first sample with the lowest score and the first with the highest; one where all are equal.
    """
    rows = {address: _extremes(records.root / address, records.known[address]) for address in addresses}
    prepared = {address: records.address_of(records.known[address]["inputs"].get("prepared")) for address in addresses}
    prompt_of = cache(_read_prompt)
    by_unit: dict[str, list[dict[str, Any]]] = {}
    prompts: dict[str, tuple[int, Excerpt]] = {}  # number and excerpt by SHA-256
    left_out = spent = 0
    ranked = [(address, row) for rank in range(2) for address, held in rows.items() for row in held[rank : rank + 1]]
    for address, row in ranked:
        digest, source = row["sha256"], prepared[address]
        new: Excerpt = []
        if source and digest not in prompts:
            found, asked = prompt_of(records.root / source / "prompts.jsonl", row["doc"])
            new = asked if found == digest else []
        cost = sum(len(str(part)) for text in (new, row["output"], row["filtered"], row["reference"]) for part in text)
        if spent + cost > PAGE_CHARACTERS:
            left_out += 1
            continue
        spent += cost
        if new:
            prompts[digest] = len(prompts), new
        if source and digest in prompts:
            row["prompt"] = prompts[digest][0]
        by_unit.setdefault(address, []).append(row)
    return by_unit, [text for _, text in prompts.values()], left_out


def _extremes(directory: Path, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The chosen rows of one unit; [] where none can be read, or nothing is asked of the model (perplexity, PMI)."""
    try:
        table = pa.table({}) if files_fault(directory, record, digests=True) else read_rows(directory, _COLUMNS)
        scores = table["score"].cast(pa.float64()).to_numpy()
        if not np.all(np.isfinite(scores)):
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


def _read_prompt(file: Path, doc: int) -> tuple[str, Excerpt]:
    """SHA-256 and excerpt of one prompt, as far as it can be read; prompts lie in the order of their doc_id."""
    try:
        with file.open("rb") as lines:
            text = json.loads(next(islice(lines, doc, None)))["prompt"]
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), excerpt(text, *_PROMPT)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration):
        return "", []


def excerpt(text: str, head: int, tail: int) -> Excerpt:
    """[text] where it is short, else [its first `head` characters, how many are left out, its last `tail`]."""
    left_out = len(text) - head - tail
    return [text] if left_out <= 0 else [text[:head], left_out, text[len(text) - tail :]]
