"""Which figures belong to an experiment, and their files."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.figures.style import FORMATS, Draw, Drawing, render, style
from tokenweight.reports.model import Report


def _drawn_by(place: str, **given: Any) -> Draw:
    """A function of this folder by module and name, imported where it draws: names of figures cost no pandas."""
    module, _, name = place.partition(".")

    def draw(report: Report, manifest: Manifest, store_root: Path) -> Drawing:
        function = getattr(import_module(f"tokenweight.reports.figures.{module}"), name)
        drawing: Drawing = function(report, manifest, store_root, **given)
        return drawing

    return draw


def figures_of(manifest: Manifest) -> dict[str, Draw]:
    """The experiment's figures by what their files' names add to its own.

    "": the figure that it is; -training where it trains; -lengths where its table has RULER at several lengths;
    -categories where it has LongBench's.
    """
    figures: dict[str, Draw] = {}
    experiment, baseline = manifest.experiment, manifest.experiment.baseline
    if experiment.figure:
        figures[""] = _drawn_by("pmi.draw" if experiment.figure.kind == "pmi" else "panels.draw_sweep")
    if any(row.train for row in manifest.rows):
        figures["-training"] = _drawn_by("training.draw", baseline=baseline)
    measures = {c.key: c.measure for c in experiment.columns if c.shown and isinstance(c.measure, TaskMean)}
    ruler = {key: m.length_tokens for key, m in measures.items() if m.benchmark == "ruler" and m.length_tokens}
    if len(ruler) > 1:
        figures["-lengths"] = _drawn_by("panels.draw_lengths", lengths_tokens=ruler, baseline=baseline)
    longbench = [key for key, m in measures.items() if m.benchmark == "longbench" and m.side is None]
    if len(longbench) > 1:
        figures["-categories"] = _drawn_by("panels.draw_categories", columns=longbench, baseline=baseline)
    return figures


def figure_paths(manifest: Manifest, out_dir: Path) -> dict[str, Path]:
    """Where the files of an experiment's figures lie: see :func:`write_figures`."""
    ends = [f"{name}.{suffix}" for name in figures_of(manifest) for suffix in FORMATS]
    ends += [f"{name or '-curve'}.csv" for name in figures_of(manifest)]
    return {end[1:]: out_dir / f"{manifest.name}{end}" for end in ends}


def drawn(report: Report, manifest: Manifest, store_root: Path) -> Iterator[tuple[str, Drawing, dict[str, bytes]]]:
    """Each figure: what its name adds to the experiment's, itself, its content by format."""
    for name, draw in figures_of(manifest).items():
        with style():
            drawing = draw(report, manifest, store_root)
            yield name, drawing, render(drawing.figure)


def write_figures(report: Report, manifest: Manifest, store_root: Path, out_dir: Path) -> dict[str, Path]:
    """Each figure as `<out>/<target><name>.pdf`, `.svg`, `.png`, and what it plots as `.csv` (of the target's own:
    `-curve.csv`, the table being `.csv`).

    Paths by `<name>.<format>` without the first sign: "pdf", "curve.csv", "training.svg". Raises UserError where it
    cannot write.
    """
    contents: dict[str, str | bytes] = {}
    for name, drawing, files in drawn(report, manifest, store_root):
        contents |= {f"{name}.{suffix}"[1:]: content for suffix, content in files.items()}
        contents[f"{name or '-curve'}.csv"[1:]] = drawing.data_csv
    paths = figure_paths(manifest, out_dir)
    write_files({paths[name]: content for name, content in contents.items()}, str(out_dir))
    return paths
