"""Training curves of all recipes of a target, from the numbers that each training left of its steps."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenweight.pipeline.manifest import Manifest, RowEntry, StageEntry
from tokenweight.pipeline.store import read_record
from tokenweight.reports.figures.points import csv_text
from tokenweight.reports.figures.style import (
    SMALLEST,
    TEXT_INCHES,
    Drawing,
    footnote,
    look,
    plain,
    say_nothing_to_draw,
    wrapped,
)
from tokenweight.reports.model import Report

QUANTITIES = {
    "nll": "NLL (nats)",
    "weighted_nll": "weighted NLL, the loss (nats)",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm before clipping",
}
DIFFERENCE = "nll_less_baseline"
_PLACES = ("nll", "weighted_nll", DIFFERENCE, "learning_rate", "grad_norm")  # the sixth place is the legend's
_MARKS = 6  # markers on a line, to tell it from others in grey

Run = tuple[str, int]  # row and seed


@dataclass(frozen=True)
class Steps:
    """Numbers of each step of one training; NaN where a step has none. `problem`: why there are none."""

    step: list[int] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)  # of each quantity
    batches: tuple[str, int, int] | None = None  # fingerprint of the chunks, seed, sequences a step: what a step reads
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
        step = [int(line["step"]) for line in lines]
        values = {name: [_number(line[name]) for line in lines] for name in QUANTITIES}
        training, seed = record["config"]["training"], int(record["config"]["seed"])
        batches = (str(record["inputs"]["chunks"]), seed, int(training["sequences_per_step"]))
        expected = int(training["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Steps(problem=f"refused, unreadable ({type(error).__name__})")
    if step != list(range(1, expected + 1)):
        return Steps(problem=f"refused, {len(step)} steps written where {expected} were trained")
    return Steps(step, values, batches)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def draw(report: Report, manifest: Manifest, store_root: Path, baseline: str | None) -> Drawing:
    """A panel for each quantity, a line for each training; several seeds of a row are lines of the same look.

    `baseline`: key of the row that the NLL of the others is compared with, step by step, where both read the same batches.
    """
    from matplotlib.figure import Figure

    trainings = _trainings(report, manifest)
    read = {run: read_steps(entry.train, store_root) for run, entry in trainings.items() if entry.train}
    whole = {run: steps for run, steps in read.items() if not steps.problem}
    names = {row.key: plain(row.name) for row in report.rows}
    compared = names.get(baseline or "")
    seeds = {seed for _, seed in read}
    titles = QUANTITIES | {DIFFERENCE: "NLL less the baseline's (nats)"}
    figure = Figure(figsize=(TEXT_INCHES, 3.5))
    panels = figure.subplots(2, 3, sharex=True)
    axes_of = dict(zip(_PLACES, panels.ravel(), strict=False))
    rows = list(dict.fromkeys(row for row, _ in read))
    handles, table = {}, []
    for (row, seed), steps in whole.items():
        differences = _less(steps, whole.get((baseline, seed))) if baseline not in (None, row) else None
        values = steps.values | ({DIFFERENCE: differences} if differences else {})
        for name, numbers in values.items():
            (handles[wrapped(names[row])],) = axes_of[name].plot(
                steps.step, numbers, **look(rows.index(row)), linewidth=0.6 if len(seeds) > 1 else 0.9,
                markersize=2.8, markevery=_marks(len(steps.step), rows.index(row), len(rows)),
            )  # fmt: skip
        columns = [values.get(name, [math.nan] * len(steps.step)) for name in titles]
        table += [
            (row, names[row], trainings[row, seed].recipe, seed, step, *(None if math.isnan(x) else x for x in numbers))
            for step, *numbers in zip(steps.step, *columns, strict=True)
        ]
    panels[0, 2].tick_params(labelbottom=True)  # nothing is below it but the legend
    for name, axes in axes_of.items():
        axes.set_title(titles[name], loc="left")
        axes.set_xlabel("step" if axes in panels[1] else "")
        if not axes.lines:
            say_nothing_to_draw(axes, ["nothing to draw"])
    axes_of["learning_rate"].yaxis.set_major_formatter("{x:g}")
    panels[1, 2].set_axis_off()
    panels[1, 2].legend(handles.values(), handles.keys(), loc="center left", handlelength=3.4, fontsize=SMALLEST)
    what = f"Every training step of {report.target}, scale {report.scale}{', a line for each seed' if len(seeds) > 1 else ''}."
    if compared:
        what += f" Baseline: {compared}, at the same step, for those that read the same batches."
    footnote(figure, [what, _lacking(read, names, seeds)])
    return Drawing(figure, csv_text(("row", "row_label", "recipe", "seed", "step", *titles), table))


def _less(steps: Steps, reference: Steps | None) -> list[float] | None:
    """NLL less the reference's at each step; None where it read other batches, so that steps cannot be compared."""
    if reference is None or steps.batches != reference.batches or steps.step != reference.step:
        return None
    return [ours - theirs for ours, theirs in zip(steps.values["nll"], reference.values["nll"], strict=True)]


def _marks(count: int, number: int, lines: int) -> tuple[int, int]:
    """First marker and distance of markers: those of the lines are beside each other."""
    every = max(1, count // _MARKS)
    return number * every // lines, every


def _lacking(read: dict[Run, Steps], names: dict[str, str], seeds: set[int]) -> str:
    of_rows: dict[tuple[str, str], list[int]] = {}  # problem and row -> its seeds
    for (row, seed), steps in read.items():
        if steps.problem:
            of_rows.setdefault((steps.problem, row), []).append(seed)
    by_problem: dict[str, list[str]] = {}
    for (problem, row), lacking in of_rows.items():
        some = f" of seed {' and '.join(map(str, lacking))}" if len(lacking) < len(seeds) else ""
        by_problem.setdefault(problem, []).append(names[row] + some)
    told = [f"{', '.join(rows)} ({problem})" for problem, rows in by_problem.items()]
    return f"Left out: {'; '.join(told)}." if told else ""


def _trainings(report: Report, manifest: Manifest) -> dict[Run, RowEntry]:
    """By row and seed, in the report's order; a training that several rows show, once."""
    order = {row.key: number for number, row in enumerate(report.rows)}
    shown = sorted((entry for entry in manifest.rows if entry.row in order), key=lambda e: (order[e.row], e.seed))
    by_address: dict[str, RowEntry] = {}
    for entry in shown:
        if entry.train:
            by_address.setdefault(entry.train.address, entry)
    return {(entry.row, entry.seed): entry for entry in by_address.values()}
