"""From manifests to one HTML page: what the store holds of each experiment, and which were not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import drawn
from tokenweight.reports.html.data import RecipeShown, Section
from tokenweight.reports.html.page import render
from tokenweight.reports.model import Report
from tokenweight.reports.writing import holds_anything, styled

_RUNTIMES = "tokenweight runtimes FILE.json"  # makes Table 6


def write_html(
    manifests: Sequence[Manifest],
    store_root: Path,
    file: Path,
    *,
    figures: bool = True,
    written: Iterable[Path] | None = None,
) -> None:
    """Write the page of one experiment, or of those of several that the store holds something of.

    `written`: further reports' JSON files, such as Table 6 and evaluations of other models; the page then says where
    Table 6 comes from. Raises UserError where the file cannot be written.
    """
    sections: list[Section] = []
    not_run: dict[str, str] = {}
    for manifest in manifests:
        report = styled(build_report(manifest, store_root), "both")
        if len(manifests) == 1 or holds_anything(report):
            svg = [files["svg"].decode() for _, files, _ in drawn(report, manifest, store_root)] if figures else []
            recipes = {
                name: RecipeShown(settings, show_config_command(manifest, name))
                for name, settings in manifest.recipes.items()
            }
            divergences = (*manifest.experiment.divergences, *manifest.divergences)
            sections.append(Section(report, manifest.full_command, recipes, divergences, svg))
        else:
            not_run[f"{report.paper_place or report.target}: {report.title}"] = manifest.full_command
    if written is not None:
        names = {manifest.name for manifest in manifests}
        sections += (
            section for section in map(_written, sorted(written)) if section and section.report.target not in names
        )
        if all(section.report.target != "table-6" for section in sections):
            not_run["Table 6: Run time of each weighting"] = _RUNTIMES
    write_files({file: render(sections, store_root, not_run)}, str(file), "another file")


def show_config_command(manifest: Manifest, recipe: str) -> str:
    """With those settings of the user's that this recipe knows."""
    changed = [key for key, _, origin in manifest.recipes[recipe] if origin == "given by you"]
    given = {name.removeprefix("set "): value for name, value in manifest.inputs.items() if name.startswith("set ")}
    known = [
        f"{key}={value}" for key, value in given.items() if any(f"{name}.".startswith(f"{key}.") for name in changed)
    ]
    options = [word for setting in known for word in ("--set", setting)]
    return shlex.join(["tokenweight", "show-config", recipe, "--scale", manifest.scale, *options])


def _written(file: Path) -> Section | None:
    """A report that was written before; None for any other file."""
    try:
        report = Report.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Section(report, _RUNTIMES if report.target == "table-6" else "tokenweight evaluate --model MODEL")
