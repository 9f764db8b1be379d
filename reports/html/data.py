"""What a page shows, and what its script reads of it: cells, the artifacts behind them, recipes; equal parts once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
from tokenweight.reports.html.artifacts import Artifacts, mapping
from tokenweight.reports.html.samples import choose_samples
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow

EMPTY = ("not_in_paper", "left_out")  # cells that the paper, or the style, leaves empty: they open nothing


@dataclass(frozen=True)
class RecipeShown:
    """Settings of a recipe as (name, value, origin), and the command that prints them."""

    settings: Sequence[tuple[str, Any, str]]
    command: str


@dataclass(frozen=True)
class Section:
    """One report. Without recipes its numbers lead to their artifacts alone."""

    report: Report
    command: str  # that makes what the report shows
    recipes: Mapping[str, RecipeShown] = field(default_factory=dict)  # by name
    divergences: tuple[str, ...] = ()  # those of the report's notes that say where it departs from the paper
    figures: Sequence[str] = ()  # SVG

    @property
    def anchor(self) -> str:
        """Its id on the page."""
        return re.sub(r"[^A-Za-z0-9-]", "-", self.report.target)

    @property
    def about(self) -> list[str]:
        """The report's notes about the whole table, without its divergences."""
        return [note.text for note in self.report.notes if note.mark is None and note.text not in self.divergences]


class Parts:
    """Values that several places share: each is kept once, and named by its number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """The number of an equal value, which is new where there was none."""
        key = json.dumps(value, sort_keys=True, default=str)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


def page_data(sections: Sequence[Section], artifacts: Artifacts) -> dict[str, Any]:
    """All data of a page. Cells that open a panel are numbered row by row, through all sections."""
    opening = [
        (number, section.report, *place)
        for number, section in enumerate(sections)
        for place in section.report.places
        if place[-1].status not in EMPTY
    ]
    units = dict.fromkeys(address for *_, cell in opening for address in cell.addresses)
    samples = choose_samples([address for address in units if artifacts.add(address)], artifacts)
    numbers = {address: number for number, address in enumerate(artifacts.records)}
    parts, settings = Parts(), Parts()
    recipes = {name: recipe for section in sections for name, recipe in section.recipes.items()}
    return {
        "commands": [section.command for section in sections],
        "cells": [_cell(*place, numbers) for place in opening],
        "artifacts": [
            _artifact(address, record, artifacts, numbers, parts) | {"samples": samples.by_unit.get(address, [])}
            for address, record in artifacts.records.items()
        ],
        "prompts": samples.prompts,
        "samplesLeftOut": samples.left_out,
        "recipes": {
            name: {
                "command": recipe.command,
                "settings": [settings.number([key, value, origin]) for key, value, origin in recipe.settings],
            }
            for name, recipe in recipes.items()
        },
        "settings": settings.values,
        "parts": parts.values,
    }


def _cell(
    section: int, report: Report, row: ReportRow, column: ReportColumn, cell: Cell, numbers: Mapping[str, int]
) -> dict[str, Any]:
    notes = {note.mark: note.text for note in report.notes if note.mark is not None}
    facts = {
        "95 % interval": interval_text(cell, column),
        "Samples": n_text(cell).removeprefix("n "),
        "Status": cell.status,
        "The paper": _paper(cell, column),
        "Ours less the paper's": less_paper_text(cell, column),
        **dict(_difference(cell, column)),
    }
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


def _paper(cell: Cell, column: ReportColumn) -> str:
    where = f" (its column {column.paper_label})" if column.has_paper_label else ""
    return cell.paper.printed + where if cell.paper else ""


def _difference(cell: Cell, column: ReportColumn) -> Iterator[tuple[str, str]]:
    difference = cell.difference
    if difference is None:
        return
    yield f"Difference to {difference.baseline_label}", difference_text(cell, column).replace(", p ", ", p\u00a0")
    if difference.reason:
        yield "Test", difference.reason
    elif difference.p is not None:
        yield "Test", f"{difference.test}, {difference.n} pairs; p\u00a0{difference.p:.3g} before correction"


def _artifact(
    address: str, record: Mapping[str, Any], artifacts: Artifacts, numbers: Mapping[str, int], parts: Parts
) -> dict[str, Any]:
    config = mapping(record.get("config"))
    inputs = {name: (artifacts.address_of(value), value) for name, value in mapping(record.get("inputs")).items()}
    return {
        "address": address,
        "stage": record.get("stage"),
        "version": record.get("stage_version"),
        "unit": config.get("unit"),
        "fingerprint": record.get("fingerprint"),
        "config": parts.number({key: value for key, value in config.items() if key != "unit"}),
        "inputs": {name: numbers[found] if found else str(value) for name, (found, value) in inputs.items()},
        "outputs": {name: mapping(value).get("sha256") for name, value in mapping(record.get("outputs")).items()},
        "facts": record.get("facts"),
        "versions": parts.number(record.get("versions")),
        "git": parts.number(record.get("git")),
        "devices": parts.number(record.get("devices")),
        "memory": parts.number(record.get("peak_memory_bytes")),
        "started": record.get("started"),
        "seconds": record.get("wall_seconds"),
    }
