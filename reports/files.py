"""The files of a table and its figures: their names, and whether those that are there are current."""

from collections.abc import Iterable
from pathlib import Path

from tokenweight.pipeline.manifest import Manifest, manifest_path, manifest_text
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports.figures.writing import figure_paths

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
