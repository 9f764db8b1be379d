"""From a manifest to all its files, in a style: ours, the paper's numbers as it prints them, or both with their difference."""

import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from tokenweight.errors import StageError, UserError
from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest, write_manifest
from tokenweight.reports import delimited, display, latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.files import FORMATS, result_paths, table_paths, write_figures
from tokenweight.reports.model import Cell, Report, ReportColumn, Style

_RENDERERS: dict[str, Callable[[Report], str]] = {
    "md": markdown.render,
    "tex": latex.render,
    "macros": latex.render_macros,
    "notes": latex.render_notes,
    "csv": delimited.render,
    "json": lambda report: report.model_dump_json(indent=2) + "\n",
}


def write_results(
    manifest: Manifest,
    store_root: Path,
    out_dir: Path,
    formats: Iterable[str] = FORMATS,
    style: Style = "both",
    figures: bool = True,
    layout: Collection[str] = (),
) -> tuple[Report, dict[str, Path]]:
    """The report and its files by kind, below `<out>/<scale>`: see :func:`write_report`; figures, and the manifest itself.

    UserError: a file cannot be written. StageError: the store has nothing of it: a table of nothing would look like a result.
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
    files = write_report(report, place, formats, style, layout)
    if style == "paper":
        return report, files
    files["manifest"] = write_manifest(manifest, result_paths(manifest, out_dir, figures)["manifest"])
    if figures:
        files |= write_figures(styled(report, style), manifest, store_root, place)
    return report, files


def write_unfinished(manifest: Manifest, store_root: Path, out_dir: Path, there: int, units: int) -> Path | None:
    """The Markdown table of a run that is at work, which says at its top that so many of its units are there.

    None where it has no number yet. UserError: it cannot be written.
    """
    report = build_report(manifest, store_root)
    if not any(cell.value is not None for cell in report.cells):
        return None
    path = result_paths(manifest, out_dir, figures=False)["md"]
    head = display.words("unfinished", there, units)
    write_files({path: f"{head}\n\n{text_of(report, 'both', as_json=False)}"}, str(out_dir))
    return path


def write_report(
    report: Report, out_dir: Path, formats: Iterable[str] = FORMATS, style: Style = "both", layout: Collection[str] = ()
) -> dict[str, Path]:
    """`<out>/<target>.md`, `.tex`, `-macros.tex`, `.csv` and `.json`, each there complete or not at all.

    And `-notes.tex` where a LaTeX table of our numbers has no notes below it; `layout`: latex.LAYOUTS. Returns the paths by
    format, the further ones as `macros` and `notes`. UserError where it cannot write.
    """
    shown = styled(report, style)
    paths = table_paths(report.target, out_dir, formats)
    if "tex" in paths and style == "ours" and "notes-below" not in layout:
        paths["notes"] = out_dir / f"{report.target}-notes.tex"
    renderers = _RENDERERS | {"tex": partial(latex.render, layout=layout)}
    write_files({path: renderers[kind](shown) for kind, path in paths.items()}, str(out_dir))
    return paths


def text_of(report: Report, style: Style, as_json: bool) -> str:
    return _RENDERERS["json" if as_json else "md"](styled(report, style))


def holds_anything(report: Report) -> bool:
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
