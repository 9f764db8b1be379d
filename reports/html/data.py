"""What a page shows, and what its script reads of it: cells, the records behind them, a few samples of each unit, recipes.

Parts that several places share are there once, by number.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from tokenweight.pipeline.store import files_fault, read_record
from tokenweight.reports import display
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow
from tokenweight.reports.samples import read_rows

PAGE_CHARACTERS = 2_000_000  # of samples on a page; a unit's second sample is the first to be left out
_PROMPT = (600, 600)  # characters of its beginning and end
_OUTPUT = (400, 200)
_SHORT = (300, 0)  # filtered output and reference
_COLUMNS = [
    "doc_id", "prompt_sha256", "n_prompt_tokens", "truncated", "output", "filtered", "reference", "metric", "score",
]  # fmt: skip
_OWN = ("stage", "stage_version", "fingerprint", "facts", "started", "wall_seconds")  # of a record
_SHARED = ("versions", "git", "devices", "peak_memory_bytes")
# The command that prints a recipe, and its settings as (name, value, origin).
Recipe = tuple[str, Sequence[tuple[str, Any, str]]]
EMPTY = ("not_in_paper", "left_out")  # cells that the paper, or the style, leaves empty: they open nothing
Excerpt = list[str | int]


@dataclass(frozen=True)
class Section:
    """One report. Without recipes its numbers lead to their artifacts alone."""

    report: Report
    command: str  # that makes what the report shows
    recipes: Mapping[str, Recipe] = field(default_factory=dict)  # by name
    figures: Mapping[str, str] = field(default_factory=dict)  # SVG, by what it is in words


def page_data(sections: Sequence[Section], records: "Records") -> dict[str, Any]:
    """All data of a page. Cells that open a panel are numbered row by row, through all sections."""
    opening = [
        (number, section.report, *place)
        for number, section in enumerate(sections)
        for place in section.report.places
        if place[-1].status not in EMPTY
    ]
    units = dict.fromkeys(address for *_, cell in opening for address in cell.addresses)
    by_unit, prompts, left_out = choose_samples([address for address in units if records.add(address)], records)
    numbers = {address: number for number, address in enumerate(records.known)}
    parts: dict[str, tuple[int, Any]] = {}

    def artifact(address: str, record: Mapping[str, Any]) -> dict[str, Any]:
        inputs = {name: (records.address_of(value), value) for name, value in record["inputs"].items()}
        outputs = record["outputs"].items()
        config = dict(record["config"])
        unit = config.pop("unit", None)  # benchmark, task and length
        trained = records.known.get(records.address_of(record["inputs"].get("checkpoint")) or address, {})
        shared = {"config": config, **{name: record.get(name) for name in _SHARED}}
        return {
            "address": address,
            **{name: record.get(name) for name in _OWN},
            "unit": "/".join(str(part) for part in unit.values() if part) if isinstance(unit, dict) else None,
            "seed": trained["config"].get("seed") if trained.get("stage") == "train" else None,
            "inputs": {name: numbers[found] if found else str(value) for name, (found, value) in inputs.items()},
            "outputs": {name: held.get("sha256") if isinstance(held, dict) else None for name, held in outputs},
            **{name: _part(value, parts) for name, value in shared.items()},
            "samples": by_unit.get(address, []),
        }

    recipes = {name: recipe for section in sections for name, recipe in section.recipes.items()}
    return {
        "commands": [section.command for section in sections],
        "cells": [_cell(*place, numbers) for place in opening],
        "artifacts": [artifact(address, record) for address, record in records.known.items()],
        "prompts": prompts,
        "samplesLeftOut": left_out,
        "recipes": {
            name: {"command": command, "settings": [_part(list(setting), parts) for setting in held]}
            for name, (command, held) in recipes.items()
        },
        "parts": [value for _, value in parts.values()],
    }


def _part(value: Any, parts: dict[str, tuple[int, Any]]) -> int:
    """The number of an equal value, which is added where there was none."""
    return parts.setdefault(json.dumps(value, sort_keys=True, default=str), (len(parts), value))[0]


def _cell(
    section: int, report: Report, row: ReportRow, column: ReportColumn, cell: Cell, numbers: Mapping[str, int]
) -> dict[str, Any]:
    notes = {note.mark: note.text for note in report.notes if note.mark is not None}
    where = f" (its column {column.paper_label})" if column.has_paper_label else ""
    nothing = ("", display.NO_NUMBER, display.NOT_IN_PAPER)
    facts = {
        "95 % interval": display.interval_text(cell, column),
        **{f"Seed {n}": text for n, text in enumerate(display.seed_texts(cell, column))},
        "Samples": display.n_text(cell).removeprefix("n "),
        "Status": cell.status,
        "The paper": cell.paper.printed + where if cell.paper else "",
        "Ours less the paper's": display.less_paper_text(cell, column),
    }
    if difference := cell.difference:
        text, about = display.difference_text(cell, column), f"{difference.test}, {difference.n} pairs"
        tested = "" if difference.p is None else f"{about}; p\u00a0{difference.p:.3g} before correction"
        facts[f"Difference to {difference.baseline_label}"] = text.replace(", p ", ", p\u00a0")
        facts["Test"] = difference.reason or tested
    return {
        "section": section,
        "row": row.name,
        "column": column.name,
        "value": display.value_text(cell, column),
        "samples": cell.n if report.seeds == 1 and not column.signed else None,
        "facts": {name: text for name, text in facts.items() if text not in nothing},
        "notes": [notes[mark] for mark in cell.marks if mark in notes],
        "recipe": row.recipe,
        "units": [numbers[address] for address in cell.addresses if address in numbers],
        "unread": sum(address not in numbers for address in cell.addresses),
    }


class Records:
    """Records of a store by address, each read once; config, inputs and outputs are mappings even in a damaged one."""

    def __init__(self, store_root: Path) -> None:
        self.root = store_root
        self.known: dict[str, dict[str, Any]] = {}
        # All but evaluations (nothing is made from those), by the digits of the fingerprint that end their name.
        made = (path for path in store_root.glob("*/[!.]*-*") if path.parent.name != "evaluate")
        self._by_prefix = {path.name.rpartition("-")[2]: f"{path.parent.name}/{path.name}" for path in made}

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
        address = self._by_prefix.get(str(fingerprint)[:8], "")
        return address if self.add(address) and self.known[address].get("fingerprint") == fingerprint else None


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
