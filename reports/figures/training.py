"""Training curves of all recipes of a target, from the numbers that each training left of its steps."""

import json
from pathlib import Path

import pandas as pd

from tokenweight.pipeline.manifest import Manifest, RowEntry, Run, StageEntry
from tokenweight.pipeline.store import files_fault
from tokenweight.reports.figures import style
from tokenweight.reports.figures.style import Drawing
from tokenweight.reports.model import Report
from tokenweight.reports.samples import record_of

DIFFERENCE = "nll_less_baseline"
_TITLES: dict[str, str] = style.LOOKS["training"]  # of the panels; the sixth place is the legend's
QUANTITIES = [name for name in _TITLES if name != DIFFERENCE]
_RUNNING = 10  # differences of single steps vary more than rows do: running means of all steps by this
_MARKS = 6  # markers on a line, to tell it from others in grey


def read_steps(entry: StageEntry, store_root: Path) -> pd.DataFrame | str:
    """A line for each step of a complete training with all quantities, or why there are none.

    `attrs["batches"]` is what its steps read: fingerprint of the chunks, seed, sequences a step.
    """
    record = record_of(entry, store_root)
    if isinstance(record, str):
        return f"refused, {record}" if record else "not trained yet"
    directory = store_root / entry.address
    only = {name: file for name, file in record["outputs"].items() if name == "metrics.jsonl"}
    if fault := files_fault(directory, {"outputs": only}, digests=True):
        return f"refused, {fault}"
    try:
        lines = (directory / "metrics.jsonl").read_text("utf-8").splitlines()
        table = pd.DataFrame(map(json.loads, lines))[["step", *QUANTITIES]].astype(
            dict.fromkeys(QUANTITIES, float) | {"step": int}
        )
        training, seed = record["config"]["training"], int(record["config"]["seed"])
        table.attrs["batches"] = (str(record["inputs"]["chunks"]), seed, int(training["sequences_per_step"]))
        expected = int(training["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"refused, unreadable ({type(error).__name__})"
    if list(table["step"]) != list(range(1, expected + 1)):
        return f"refused, {len(table)} steps written where {expected} were trained"
    return table


def draw(report: Report, manifest: Manifest, store_root: Path, baseline: str | None) -> Drawing:
    """A panel for each quantity, a line for each row: of several seeds their mean, in a band from the lowest to the highest.

    `baseline`: key of the row that the NLL of the others is compared with, step by step, where both read the same batches.
    """
    trainings = _trainings(report, manifest)
    read = {run: read_steps(entry.train, store_root) for run, entry in trainings.items() if entry.train}
    names = {row.key: style.plain(row.name) for row in report.rows}
    rows, seeds = list(dict.fromkeys(row for row, _ in read)), {seed for _, seed in read}
    header = ["row", "row_label", "recipe", "seed", "step", *QUANTITIES, DIFFERENCE]
    tables, problems = list[pd.DataFrame](), []
    for (row, seed), steps in read.items():
        if isinstance(steps, str):
            problems.append(f"{manifest.label((row, seed))} ({steps})")
            continue
        reference = read.get((baseline or "", seed))
        table = steps.assign(row=row, row_label=names[row], recipe=trainings[row, seed].recipe, seed=seed)
        table[DIFFERENCE] = float("nan")
        if isinstance(reference, pd.DataFrame) and row != baseline and steps.attrs == reference.attrs:
            table[DIFFERENCE] = table["nll"] - reference["nll"]
        tables.append(table[header])
    plotted = pd.concat(tables) if tables else pd.DataFrame(columns=header, dtype=float)
    window = max(1, int(plotted["step"].max()) // _RUNNING) if tables else 1
    figure, panels = style.grid(len(_TITLES) + 1, 3, lambda _: 3.5, sharex=True)
    for (name, title), axes in zip(_TITLES.items(), panels, strict=False):
        axes.set_title(title, loc="left")
        axes.set_xlabel("training step" if axes in panels[3:] else "")
        for number, row in enumerate(rows):
            over = plotted[plotted["row"] == row].groupby("step")[name].agg(["mean", "min", "max"]).dropna()
            if over.empty:
                continue
            if name == DIFFERENCE:
                over = over.rolling(window, center=True).mean().dropna()
            looks, every = style.look(number), max(1, len(over) // _MARKS)
            axes.plot(
                over.index.to_numpy(),
                over["mean"].to_numpy(),
                **looks,
                label=style.wrapped(names[row]),
                linewidth=0.9,
                markersize=2.8,
                markevery=(number * every // len(rows), every),  # those of the lines are beside each other
            )
            if len(seeds) > 1:
                ends = over["min"].to_numpy(), over["max"].to_numpy()
                axes.fill_between(over.index.to_numpy(), *ends, color=looks["color"], alpha=0.2, linewidth=0)
        if not axes.lines:
            style.say_nothing_to_draw(axes, ["nothing to draw"])
    panels[2].tick_params(labelbottom=True)  # nothing is below it but the legend
    if (usual := plotted.groupby("row")[DIFFERENCE].mean().abs().median()) > 0:  # one row far off hides no other
        panels[2].set_yscale("asinh", linear_width=usual, base=0)
        panels[2].yaxis.set_major_formatter("{x:.2g}")
    panels[3].yaxis.set_major_formatter("{x:g}")
    handles = style.by_name(figure)
    panels[5].set_axis_off()
    panels[5].legend(handles.values(), handles.keys(), loc="center left", handlelength=3.4, fontsize=style.SMALLEST)
    over_seeds = f", mean of {len(seeds)} seeds; bands: from the lowest to the highest" if len(seeds) > 1 else ""
    about = f"Every training step of {report.target}, scale {report.scale}{over_seeds}."
    if baseline in names:
        about += f" Baseline: {names[baseline]}, at the same step, for those that read the same batches"
        about += f"; running means of {window} steps." if window > 1 else "."
    style.footnote(figure, [about, f"Left out: {'; '.join(problems)}." if problems else ""])
    return Drawing(figure, plotted, about)


def _trainings(report: Report, manifest: Manifest) -> dict[Run, RowEntry]:
    """By row and seed, in the report's order; a training that several rows show, once."""
    order = [row.key for row in report.rows]
    entries = [entry for entry in manifest.rows if entry.row in order]
    first = dict[str, RowEntry]()
    for entry in sorted(entries, key=lambda entry: (order.index(entry.row), entry.seed)):
        if entry.train:
            first.setdefault(entry.train.address, entry)
    return {(entry.row, entry.seed): entry for entry in first.values()}
