"""Which figures belong to an experiment, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.figures import panels, pmi, training
from tokenweight.reports.figures.style import FORMATS, Draw, render, style
from tokenweight.reports.model import Report

_OWN: dict[str, Draw] = {"ablation": panels.draw_sweep, "pmi": pmi.draw, "sweep": panels.draw_sweep}


def figures_of(manifest: Manifest) -> dict[str, Draw]:
    """The experiment's figures by what their files' names add to its own.

    "": the figure that it is; -training where it trains; -lengths where its table has RULER at several lengths;
    -categories where it has LongBench's.
    """
    figures: dict[str, Draw] = {}
    experiment = manifest.experiment
    if experiment.figure:
        figures[""] = _OWN[experiment.figure.kind]
    if any(row.train for row in manifest.rows):
        figures["-training"] = partial(training.draw, baseline=experiment.baseline)
    measures = {c.key: c.measure for c in experiment.columns if c.shown and isinstance(c.measure, TaskMean)}
    ruler = {key: m.length_tokens for key, m in measures.items() if m.benchmark == "ruler" and m.length_tokens}
    if len(ruler) > 1:
        figures["-lengths"] = lambda report, *_: panels.draw_lengths(report, ruler, experiment.baseline)
    longbench = [key for key, m in measures.items() if m.benchmark == "longbench" and m.side is None]
    if len(longbench) > 1:
        figures["-categories"] = lambda report, *_: panels.draw_categories(report, longbench, experiment.baseline)
    return figures


def figure_paths(report: Report, manifest: Manifest, out_dir: Path) -> dict[str, Path]:
    """Where the files of an experiment's figures lie: see :func:`write_figures`."""
    ends = [f"{name}.{suffix}" for name in figures_of(manifest) for suffix in FORMATS]
    ends += [f"{name or '-curve'}.csv" for name in figures_of(manifest)]
    return {end[1:]: out_dir / f"{report.target}{end}" for end in ends}


def drawn(report: Report, manifest: Manifest, store_root: Path) -> Iterator[tuple[str, dict[str, bytes], str]]:
    """Each figure: what its name adds to the experiment's, its content by format, what it plots as CSV."""
    for name, draw in figures_of(manifest).items():
        with style():
            drawing = draw(report, manifest, store_root)
            files = render(drawing.figure)
        yield name, files, drawing.data_csv


def write_figures(report: Report, manifest: Manifest, store_root: Path, out_dir: Path) -> dict[str, Path]:
    """Each figure as `<out>/<target><name>.pdf`, `.svg`, `.png`, and what it plots as `.csv` (of the target's own:
    `-curve.csv`, the table being `.csv`).

    Paths by `<name>.<format>` without the first sign: "pdf", "curve.csv", "training.svg". Raises UserError where it
    cannot write.
    """
    contents: dict[str, str | bytes] = {}
    for name, files, data_csv in drawn(report, manifest, store_root):
        contents |= {f"{name}.{suffix}"[1:]: content for suffix, content in files.items()}
        contents[f"{name or '-curve'}.csv"[1:]] = data_csv
    paths = figure_paths(report, manifest, out_dir)
    write_files({paths[name]: content for name, content in contents.items()}, str(out_dir))
    return paths
