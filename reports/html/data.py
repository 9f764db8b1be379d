"""What a page shows, and what its script reads of it: cells, the artifacts behind them, recipes; equal parts once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenweight.reports.display import (
    NO_NUMBER,
    NOT_IN_PAPER,
    difference_text,
    interval_text,
    less_paper_text,
    n_text,
    value_text,
)
from tokenweight.reports.html.behind import Records, choose_samples
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow

# The command that prints a recipe, and its settings as (name, value, origin).
Recipe = tuple[str, Sequence[tuple[str, Any, str]]]
EMPTY = ("not_in_paper", "left_out")  # cells that the paper, or the style, leaves empty: they open nothing


@dataclass(frozen=True)
class Section:
    """One report. Without recipes its numbers lead to their artifacts alone."""

    report: Report
    command: str  # that makes what the report shows
    recipes: Mapping[str, Recipe] = field(default_factory=dict)  # by name
    figures: Sequence[str] = ()  # SVG


def page_data(sections: Sequence[Section], records: Records) -> dict[str, Any]:
    """All data of a page; parts that several places share are there once, by number. Cells that open a panel are
    numbered row by row, through all sections."""
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
    settings: dict[str, tuple[int, Any]] = {}
    recipes = {name: recipe for section in sections for name, recipe in section.recipes.items()}
    return {
        "commands": [section.command for section in sections],
        "cells": [_cell(*place, numbers) for place in opening],
        "artifacts": [
            _artifact(address, record, records, numbers, parts) | {"samples": by_unit.get(address, [])}
            for address, record in records.known.items()
        ],
        "prompts": prompts,
        "samplesLeftOut": left_out,
        "recipes": {
            name: {"command": command, "settings": [_part(list(setting), settings) for setting in held]}
            for name, (command, held) in recipes.items()
        },
        "settings": [value for _, value in settings.values()],
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
    facts = {
        "95 % interval": interval_text(cell, column),
        "Samples": n_text(cell).removeprefix("n "),
        "Status": cell.status,
        "The paper": cell.paper.printed + where if cell.paper else "",
        "Ours less the paper's": less_paper_text(cell, column),
    }
    if difference := cell.difference:
        facts[f"Difference to {difference.baseline_label}"] = difference_text(cell, column).replace(", p ", ", p\u00a0")
        if difference.p is not None:
            facts["Test"] = f"{difference.test}, {difference.n} pairs; p\u00a0{difference.p:.3g} before correction"
        facts["Test"] = difference.reason or facts.get("Test", "")
    return {
        "section": section,
        "row": row.name,
        "column": column.name,
        "value": value_text(cell, column),
        "samples": cell.n if report.seeds == 1 and not column.signed else None,
        "facts": {name: text for name, text in facts.items() if text not in ("", NO_NUMBER, NOT_IN_PAPER)},
        "notes": [notes[mark] for mark in cell.marks if mark in notes],
        "recipe": row.recipe,
        "units": [numbers[address] for address in cell.addresses if address in numbers],
        "unread": sum(address not in numbers for address in cell.addresses),
    }


def _artifact(
    address: str,
    record: Mapping[str, Any],
    records: Records,
    numbers: Mapping[str, int],
    parts: dict[str, tuple[int, Any]],
) -> dict[str, Any]:
    inputs = {name: (records.address_of(value), value) for name, value in record["inputs"].items()}
    outputs = record["outputs"].items()
    shared = {
        "config": {key: value for key, value in record["config"].items() if key != "unit"},
        "versions": record.get("versions"),
        "git": record.get("git"),
        "devices": record.get("devices"),
        "memory": record.get("peak_memory_bytes"),
    }
    return {
        "address": address,
        "stage": record.get("stage"),
        "version": record.get("stage_version"),
        "unit": record["config"].get("unit"),
        "fingerprint": record.get("fingerprint"),
        "inputs": {name: numbers[found] if found else str(value) for name, (found, value) in inputs.items()},
        "outputs": {name: held.get("sha256") if isinstance(held, dict) else None for name, held in outputs},
        "facts": record.get("facts"),
        "started": record.get("started"),
        "seconds": record.get("wall_seconds"),
        **{name: _part(value, parts) for name, value in shared.items()},
    }
