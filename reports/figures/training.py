"""Training curves of all recipes of a target, from the numbers that each training left of its steps."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenweight.reports.figures.points import csv_text, row_name
from tokenweight.reports.figures.style import (
    TEXT_INCHES,
    Drawing,
    footnote,
    look,
    plain,
    say_nothing_to_draw,
)
from tokenweight.reports.manifest import Manifest, RowEntry, StageEntry
from tokenweight.reports.model import Report
from tokenweight.store.store import read_record

QUANTITIES = {
    "nll": "NLL, all tokens alike (nats)",
    "weighted_nll": "weighted NLL: the loss (nats)",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm, before clipping",
}
_MARKS = 6  # markers on a line, to tell it from others in grey


@dataclass(frozen=True)
class Steps:
    """Numbers of each step of one training; NaN where a step has none. `problem`: why there are none."""

    step: tuple[int, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()  # of each quantity
    problem: str = ""


def read_steps(entry: StageEntry, store_root: Path) -> Steps:
    """The steps of a whole training. Never raises for what is wrong with an artifact: the result says it."""
    directory = store_root / entry.address
    record = read_record(directory)
    if record is None:
        return Steps(problem="refused, its record cannot be read" if directory.exists() else "not trained yet")
    if record.get("fingerprint") != entry.fingerprint:
        return Steps(problem="refused, stale: its record has another fingerprint than the recipe")
    try:
        lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text("utf-8").splitlines()]
        step = tuple(int(line["step"]) for line in lines)
        values = tuple(tuple(_number(line[name]) for line in lines) for name in QUANTITIES)
        expected = int(record["config"]["training"]["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Steps(problem=f"refused, unreadable ({type(error).__name__})")
    if step != tuple(range(1, expected + 1)):
        return Steps(problem=f"refused, {len(step)} steps written where {expected} were trained")
    return Steps(step, values)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def draw(report: Report, manifest: Manifest, store_root: Path) -> Drawing:
    """A panel for each quantity, a line for each training; several seeds of a row are lines of the same look."""
    from matplotlib.figure import Figure

    trainings = _trainings(report, manifest)
    read = {run: read_steps(entry, store_root) for run, (_, entry) in trainings.items()}
    labels = {row.key: plain(row_name(row)) for row in report.rows}
    several = len({seed for _, seed in read}) > 1
    figure = Figure(figsize=(TEXT_INCHES, 4.3))
    panels = dict(zip(QUANTITIES, figure.subplots(2, 2, sharex=True).ravel(), strict=True))
    looks = {row: look(number) for number, row in enumerate(dict.fromkeys(row for row, _ in read))}
    handles = {}
    table = []
    for (row, seed), steps in read.items():
        if steps.problem:
            continue
        every = max(1, len(steps.step) // _MARKS)
        offset = (list(looks).index(row) * every) // max(1, len(looks))
        for axes, values in zip(panels.values(), steps.values, strict=True):
            (handles[labels[row]],) = axes.plot(
                steps.step, values, **looks[row], linewidth=0.7 if several else 1.0, markersize=2.8,
                markevery=(offset, every),
            )  # fmt: skip
        recipe = trainings[row, seed][0].recipe
        table += [
            (row, labels[row], recipe, seed, step, *(None if math.isnan(value) else value for value in numbers))
            for step, *numbers in zip(steps.step, *steps.values, strict=True)
        ]
    lacking: dict[str, list[str]] = {}
    for (row, seed), steps in read.items():
        if steps.problem:
            lacking.setdefault(steps.problem, []).append(labels[row] + (f" seed {seed}" if several else ""))
    for name, axes in panels.items():
        axes.set_title(QUANTITIES[name], loc="left")
        if not table:
            say_nothing_to_draw(axes, ["nothing to draw"])
    if table:
        for axes in list(panels.values())[-2:]:
            axes.set_xlabel("step")
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, handlelength=3.2)
    lines = f"Every training step of {report.target}, scale {report.scale}"
    lines += "; one line for each seed." if several else "."
    footnote(figure, [lines, _said(lacking)])
    return Drawing(figure, csv_text(("row", "row_label", "recipe", "seed", "step", *QUANTITIES), table))


def _said(lacking: dict[str, list[str]]) -> str:
    told = [f"{', '.join(runs)} ({problem})" for problem, runs in lacking.items()]
    return f"Left out: {'; '.join(told)}." if told else ""


def _trainings(report: Report, manifest: Manifest) -> dict[tuple[str, int], tuple[RowEntry, StageEntry]]:
    """By row and seed, in the report's order; a training that several rows show, once."""
    order = {row.key: number for number, row in enumerate(report.rows)}
    shown = sorted((entry for entry in manifest.rows if entry.row in order), key=lambda e: (order[e.row], e.seed))
    by_address: dict[str, tuple[RowEntry, StageEntry]] = {}
    for entry in shown:
        if entry.train:
            by_address.setdefault(entry.train.address, (entry, entry.train))
    return {(entry.row, entry.seed): (entry, stage) for entry, stage in by_address.values()}
