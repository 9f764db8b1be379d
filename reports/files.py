"""The files of a table and its figures: their names, which figures an experiment has, whether those that are there are current."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest, manifest_path, manifest_text
from tokenweight.pipeline.measures import TaskMean
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports.figures import style
from tokenweight.reports.figures.style import Drawing
from tokenweight.reports.model import Report
from tokenweight.reports.targets.columns import about

FORMATS = {"md": (".md",), "tex": (".tex", "-macros.tex"), "csv": (".csv",), "json": (".json",)}  # ends of names


def chosen_formats(text: str | None) -> tuple[str, ...]:
    """Comma-separated formats; None: all. UserError for others."""
    return chosen_names("--formats", ",".join(FORMATS) if text is None else text, FORMATS)


def table_paths(name: str, out_dir: Path, formats: Iterable[str]) -> dict[str, Path]:
    """Where a table lies, by format; its macros for LaTeX as `macros`."""
    ends = [end for chosen in formats for end in FORMATS[chosen]]
    return {end.strip(".-").removesuffix(".tex"): out_dir / f"{name}{end}" for end in ends}


def result_paths(manifest: Manifest, out_dir: Path, figures: bool) -> dict[str, Path]:
    """All that is written of an experiment below `<out>/<scale>`, by kind."""
    place = out_dir / manifest.scale
    files = table_paths(manifest.name, place, FORMATS) | {"manifest": place / f"{manifest.name}.manifest.json"}
    return files | (figure_paths(manifest, place) if figures else {})


def current_results(manifest: Manifest, store_root: Path, out_dir: Path, figures: bool) -> dict[str, Path] | None:
    """The results that are there, or None where they would not come out the same now.

    As `make` sees it: they are of this manifest, and none of them, of the artifacts that they are made from, or of the code
    that makes them was written after the manifest was kept in the store, which is done last.
    """
    files, kept = result_paths(manifest, out_dir, figures), manifest_path(store_root, manifest.name, manifest.scale)
    are_there = all(path.is_file() for path in (kept, *files.values()))
    if not are_there or files["manifest"].read_bytes() != manifest_text(manifest).encode():
        return None
    entries = [entry for row in manifest.rows for entry in (*row.units, row.train) if entry]
    artifacts = {store_root / entry.address for entry in entries}
    sources = [file for artifact in artifacts if artifact.is_dir() for file in artifact.iterdir()]
    code = [file for pattern in ("*.*", "[!_]*/*.*") for file in Path(__file__).parent.glob(pattern)]
    last = max(path.stat().st_mtime_ns for path in (*files.values(), *sources, *code))
    return files if last <= kept.stat().st_mtime_ns else None


# --- figures


def _draw(place: str, report: Report, manifest: Manifest, store_root: Path, **given: Any) -> Drawing:
    """By a function of figures/, by module and name, imported where it draws: names of figures cost no pandas."""
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
    ends = [f"{name}.{suffix}" for name in figures_of(manifest) for suffix in style.FORMATS]
    ends += [f"{name or '-curve'}.csv" for name in figures_of(manifest)]
    return {end[1:]: out_dir / f"{manifest.name}{end}" for end in ends}


def drawn(report: Report, manifest: Manifest, store_root: Path) -> Iterator[tuple[str, Drawing, dict[str, bytes]]]:
    """Each figure: what its name adds to the experiment's, itself, its content by format."""
    for name, draw in figures_of(manifest).items():
        with style.style():
            drawing = draw(report, manifest, store_root)
            yield name, drawing, style.render(drawing.figure)


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
