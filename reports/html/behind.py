"""What is behind numbers: records, those of what their artifacts were made from, and a few samples of each unit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from tokenweight.pipeline.store import files_fault, read_record
from tokenweight.reports.samples import read_rows

PAGE_CHARACTERS = 2_000_000  # of samples on a page; a unit's second sample is the first to be left out
_PROMPT = (600, 600)  # characters of its beginning and end
_OUTPUT = (400, 200)
_SHORT = (300, 0)  # filtered output and reference
_COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "truncated", "output", "filtered", "reference", "metric", "score",
]  # fmt: skip

Excerpt = list[str | int]


class Records:
    """Records of a store by address, each read once; config, inputs and outputs are mappings even in a damaged one."""

    def __init__(self, store_root: Path) -> None:
        self.root = store_root
        self.known: dict[str, dict[str, Any]] = {}
        # All but evaluations (nothing is made from those), by the digits of the fingerprint that end their name.
        self._by_prefix: dict[str, list[str]] = {}
        for path in sorted(store_root.glob("*/*-*")):
            if path.parent.name != "evaluate" and path.is_dir() and not path.name.startswith("."):
                address = f"{path.parent.name}/{path.name}"
                self._by_prefix.setdefault(path.name.rpartition("-")[2], []).append(address)

    def add(self, address: str) -> bool:
        """Read an artifact's record and those of all that it was made from; False where it has none."""
        if address in self.known:
            return True
        place = PurePosixPath(address)
        outside = place.is_absolute() or ".." in place.parts
        record = None if outside else read_record(self.root / address)
        if record is None:
            return False
        fields = {name: record.get(name) for name in ("config", "inputs", "outputs")}
        self.known[address] = record | {name: held if isinstance(held, dict) else {} for name, held in fields.items()}
        for fingerprint in self.known[address]["inputs"].values():
            self.address_of(fingerprint)
        return True

    def address_of(self, fingerprint: Any) -> str | None:
        """Address of what an artifact was made from; None where no artifact in the store has that fingerprint."""
        for address in self._by_prefix.get(str(fingerprint)[:8], ()):
            if self.add(address) and self.known[address].get("fingerprint") == fingerprint:
                return address
        return None


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
        digest, source = row["prompt_sha256"], prepared[address]
        new: Excerpt = []
        if source and digest not in prompts:
            found, asked = prompt_of(records.root / source / "prompts.jsonl", row["doc_id"])
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
        cut = {"output": _OUTPUT, "filtered": _SHORT, "reference": _SHORT}
        return [
            row | {name: excerpt(row[name], *lengths) for name, lengths in cut.items()}
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
