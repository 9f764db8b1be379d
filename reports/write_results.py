"""From a manifest to all its files: `<out>/<scale>/<name>.md` and so on, figures, the manifest itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenweight.errors import StageError
from tokenweight.pipeline.manifest import Manifest, write_manifest
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import write_figures
from tokenweight.reports.model import Report, Style
from tokenweight.reports.styles import styled
from tokenweight.reports.writing import FORMATS, write_report


def write_results(
    manifest: Manifest,
    store_root: Path,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    style: Style = "both",
    figures: bool = True,
) -> tuple[Report, dict[str, Path]]:
    """The report and its files by kind, below `<out>/<scale>`.

    Raises:
        UserError: a file cannot be written.
        StageError: the store has nothing of it at all: a table of nothing would look like a result.
    """
    report = build_report(manifest, store_root)
    told = any(entry.failed for entry in manifest.rows)
    if style != "paper" and not told and not holds_anything(report):
        raise StageError(
            f"{manifest.name} ({manifest.scale}): {store_root} has no record of it{_why(report)}; run {manifest.full_command}"
        )
    place = out_dir / manifest.scale
    files = write_report(report, place, formats, style)
    if style == "paper":
        return report, files
    files["manifest"] = write_manifest(manifest, place / f"{manifest.name}.manifest.json")
    if figures:
        drawn = styled(report, "ours") if style == "ours" else report
        files |= write_figures(drawn, manifest, store_root, place)
    return report, files


def holds_anything(report: Report) -> bool:
    """Whether any cell rests on a record."""
    return any(cell.status not in ("missing", "not_in_paper") for row in report.rows for cell in row.cells)


def _why(report: Report) -> str:
    """The one reason of all cells, where they have one, such as records of other settings."""
    reasons = {note.text.rpartition(": ")[2] for note in report.notes if note.mark is not None}
    return f" ({reasons.pop()})" if len(reasons) == 1 else ""
