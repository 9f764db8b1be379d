"""Write a report in its formats; each file is there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenweight.files import write_files
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports import delimited, latex, macros, markdown
from tokenweight.reports.model import Report, Style
from tokenweight.reports.styles import styled

# What each format writes: end of the file's name -> its text.
_RENDERERS: dict[str, dict[str, Callable[[Report], str]]] = {
    "md": {".md": markdown.render},
    "tex": {".tex": latex.render, "-macros.tex": macros.render},
    "csv": {".csv": delimited.render},
    "json": {".json": lambda report: report.model_dump_json(indent=2) + "\n"},
}
FORMATS = tuple(_RENDERERS)


def chosen_formats(text: str | None) -> tuple[str, ...]:
    """Comma-separated formats; None: all. UserError for others."""
    return FORMATS if text is None else chosen_names("--formats", text, FORMATS)


def write_report(
    report: Report, out_dir: Path, formats: Sequence[str] = FORMATS, style: Style = "both"
) -> dict[str, Path]:
    """`<out>/<target>.md`, `.tex`, `-macros.tex`, `.csv` and `.json`.

    Returns the paths by format, those of macros as `macros`. UserError where it cannot write.
    """
    shown = styled(report, style)
    texts = {end: render(shown) for name in formats for end, render in _RENDERERS[name].items()}
    paths = {end.strip(".-").removesuffix(".tex"): out_dir / f"{report.target}{end}" for end in texts}
    write_files(dict(zip(paths.values(), texts.values(), strict=True)), str(out_dir))
    return paths
