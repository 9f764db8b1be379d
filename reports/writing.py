"""From a manifest to all its files, in a style: ours, the paper's numbers as it prints them, or both with their difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenweight.errors import StageError, UserError
from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest, write_manifest
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import figure_paths, write_figures
from tokenweight.reports.model import Cell, Report, ReportColumn, Style

# What each format writes: end of the file's name -> its text.
_RENDERERS: dict[str, dict[str, Callable[[Report], str]]] = {
    "md": {".md": markdown.render},
    "tex": {".tex": latex.render, "-macros.tex": latex.render_macros},
    "csv": {".csv": delimited.render},
    "json": {".json": lambda report: report.model_dump_json(indent=2) + "\n"},
}
FORMATS = tuple(_RENDERERS)


def chosen_formats(text: str | None) -> tuple[str, ...]:
    """Comma-separated formats; None: all. UserError for others."""
    return FORMATS if text is None else chosen_names("--formats", text, FORMATS)


def write_results(
    manifest: Manifest,
    store_root: Path,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    style: Style = "both",
    figures: bool = True,
    keep_figures: bool = False,
) -> tuple[Report, dict[str, Path]]:
    """The report and its files by kind, below `<out>/<scale>`: see :func:`write_report`; figures, and the manifest itself.

    `keep_figures`: those that are there are not drawn again where report and manifest are what they were.

    Raises:
        UserError: a file cannot be written.
        StageError: the store has nothing of it at all: a table of nothing would look like a result.
    """
    report = build_report(manifest, store_root)
    has_failures = any(entry.failed for entry in manifest.rows)
    if style != "paper" and not has_failures and not holds_anything(report):
        reasons = {note.text.rpartition(": ")[2] for note in report.notes if note.mark is not None}
        why = f" ({reasons.pop()})" if len(reasons) == 1 else ""
        raise StageError(
            f"{manifest.name} ({manifest.scale}): {store_root} has no record of it{why}; run {manifest.full_command}"
        )
    place = out_dir / manifest.scale
    about = [place / f"{manifest.name}{end}" for end in (".json", ".manifest.json")]
    before = [path.read_bytes() for path in about if path.is_file()]
    files = write_report(report, place, formats, style)
    if style == "paper":
        return report, files
    files["manifest"] = write_manifest(manifest, about[1])
    drawn = figure_paths(report, manifest, place) if figures else {}
    is_same = keep_figures and before == [path.read_bytes() for path in about if path.is_file()]
    if not (is_same and all(path.is_file() for path in drawn.values())):
        drawn = write_figures(styled(report, style), manifest, store_root, place) if figures else {}
    return report, files | drawn


def write_report(
    report: Report, out_dir: Path, formats: Sequence[str] = FORMATS, style: Style = "both"
) -> dict[str, Path]:
    """`<out>/<target>.md`, `.tex`, `-macros.tex`, `.csv` and `.json`, each there complete or not at all.

    Returns the paths by format, those of macros as `macros`. UserError where it cannot write.
    """
    shown = styled(report, style)
    texts = {end: render(shown) for name in formats for end, render in _RENDERERS[name].items()}
    paths = {end.strip(".-").removesuffix(".tex"): out_dir / f"{report.target}{end}" for end in texts}
    write_files(dict(zip(paths.values(), texts.values(), strict=True)), str(out_dir))
    return paths


def holds_anything(report: Report) -> bool:
    """Whether any cell rests on a record."""
    return any(cell.status not in ("missing", "not_in_paper") for cell in report.cells)


def styled(report: Report, style: Style) -> Report:
    """The report in a style. UserError for the paper's alone where the paper prints no such numbers."""
    if style == "paper":
        return _as_printed(report)

    def shown(cell: Cell, column: ReportColumn) -> Cell:
        if style == "ours":
            return cell.model_copy(update={"paper": None})
        if cell.value is None or cell.paper is None or cell.paper.value is None:
            return cell
        # Of values as printed, so that the three numbers of a cell add up; an incomplete cell has no difference.
        less_paper = round(round(cell.value, column.decimals) - cell.paper.value, column.decimals)
        return cell.model_copy(update={"less_paper": less_paper})

    rows = (row.model_copy(update={"cells": tuple(map(shown, row.cells, report.columns))}) for row in report.rows)
    without = {"paper": None} if style == "ours" else {}
    statistics = tuple(statistic.model_copy(update=without) for statistic in report.statistics)
    return report.model_copy(update={"style": style, "rows": tuple(rows), "statistics": statistics})


def _as_printed(report: Report) -> Report:
    """The rows and columns that the paper has, each once, with its headings, numbers and emphasis; nothing measured."""
    if not report.has_paper:
        raise UserError(f"--style paper: the paper prints no numbers of {report.target}; use --style ours")
    printed = [i for i in range(len(report.columns)) if any(row.cells[i].paper for row in report.rows)]
    first = sorted({report.columns[i].paper_column: i for i in reversed(printed)}.values())
    columns = [report.columns[index] for index in first]
    rows = []
    for row in report.rows_of_paper:
        cells = tuple(Cell(status="left_out", paper=row.cells[index].paper) for index in first)
        rows.append(row.model_copy(update={"label": row.paper_label, "cells": cells}))
    update = {
        "columns": tuple(c.model_copy(update={"label": c.paper_label or c.label}) for c in columns),
        "emphasis": re.sub(r" \(.*?\)", "", report.emphasis),  # in brackets are rows by our names
        "statistics": tuple(s.model_copy(update={"value": None}) for s in report.statistics),
    }
    empty = {"seeds": 1, "baseline": None, "notes": (), "findings": ()}
    return report.model_copy(update={"style": "paper", "rows": tuple(rows), **update, **empty})
