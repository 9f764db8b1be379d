"""Which figures belong to an experiment, and their files."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.figures.style import FORMATS, Drawing, render, style
from tokenweight.reports.model import Report
from tokenweight.reports.targets.columns import about


def _draw(place: str, report: Report, manifest: Manifest, store_root: Path, **given: Any) -> Drawing:
    """By a function of this folder, by module and name, imported where it draws: names of figures cost no pandas."""
    module, _, name = place.partition(".")
    function: Callable[..., Drawing] = getattr(import_module(f"tokenweight.reports.figures.{module}"), name)
    return function(report, manifest, store_root, **given)


def figures_of(manifest: Manifest) -> dict[str, Callable[[Report, Manifest, Path], Drawing]]:
    """The experiment's figures by what their files' names add to its own, from its report, itself and the store's root.

    "": the figure that it is; -training where it trains; -lengths where its table has a benchmark at several lengths.
    """
    figures = dict[str, Callable[[Report, Manifest, Path], Drawing]]()
    experiment, baseline = manifest.experiment, manifest.experiment.baseline
    if experiment.figure:
        kind = experiment.figure.kind
        figures[""] = partial(_draw, "panels.draw_sweep" if kind in ("ablation", "sweep") else f"{kind}.draw")
    if any(row.train for row in manifest.rows):
        figures["-training"] = partial(_draw, "training.draw", baseline=baseline)
    measures = {c.key: c.measure for c in experiment.columns if c.shown and isinstance(c.measure, TaskMean)}
    for name, one in about(measure.benchmark for measure in measures.values()).items():
        lengths = {key: m.length_tokens for key, m in measures.items() if m.benchmark == name and m.length_tokens}
        if len(lengths) > 1 and (axis := one.get("by_length")):
            figures["-lengths"] = partial(
                _draw, "panels.draw_lengths", lengths_tokens=lengths, baseline=baseline, axis=axis
            )
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
    """Each figure as `<target><name>.pdf`, `.svg`, `.png`, and its data as `.csv` (of the target's own: `-curve.csv`).

    Paths are by "pdf", "curve.csv", "training.svg" and so on. Raises UserError where it cannot write.
    """
    contents: dict[str, str | bytes] = {}
    for name, drawing, files in drawn(report, manifest, store_root):
        contents |= {f"{name}.{suffix}"[1:]: content for suffix, content in files.items()}
        contents[f"{name or '-curve'}.csv"[1:]] = drawing.data_csv
    paths = figure_paths(manifest, out_dir)
    write_files({paths[name]: content for name, content in contents.items()}, str(out_dir))
    return paths
