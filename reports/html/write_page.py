"""From manifests to one HTML page: what the store holds of each experiment, and which were not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.writing import drawn
from tokenweight.reports.html.data import NotRun, RecipeShown, Section
from tokenweight.reports.html.page import render
from tokenweight.reports.model import Report
from tokenweight.reports.styles import styled
from tokenweight.reports.write_results import holds_anything

_TABLE_6 = NotRun("table-6", "Run time of each weighting", "Table 6", "tokenweight runtimes FILE.json")


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
    not_run: list[NotRun] = []
    for manifest in manifests:
        report = styled(build_report(manifest, store_root), "both")
        if len(manifests) == 1 or holds_anything(report):
            svg = [files["svg"].decode() for _, files, _ in drawn(report, manifest, store_root)] if figures else []
            sections.append(_section(manifest, report, svg))
        else:
            not_run.append(NotRun(manifest.name, report.title, report.paper_place, manifest.full_command))
    if written is not None:
        sections += _written(written, {manifest.name for manifest in manifests})
        if all(section.report.target != _TABLE_6.target for section in sections):
            not_run.append(_TABLE_6)
    write_files({file: render(sections, store_root, not_run)}, str(file), "another file")


def _section(manifest: Manifest, report: Report, figures: Sequence[str]) -> Section:
    recipes = {
        name: RecipeShown(settings, show_config_command(manifest, name)) for name, settings in manifest.recipes.items()
    }
    divergences = (*manifest.experiment.divergences, *manifest.divergences)
    return Section(report, manifest.full_command, recipes, divergences, figures)


def show_config_command(manifest: Manifest, recipe: str) -> str:
    """With those settings of the user's that this recipe knows."""
    changed = [key for key, _, origin in manifest.recipes[recipe] if origin == "given by you"]
    given = {name.removeprefix("set "): value for name, value in manifest.inputs.items() if name.startswith("set ")}
    known = [
        f"{key}={value}" for key, value in given.items() if any(f"{name}.".startswith(f"{key}.") for name in changed)
    ]
    options = [word for setting in known for word in ("--set", setting)]
    return shlex.join(["tokenweight", "show-config", recipe, "--scale", manifest.scale, *options])


def _written(files: Iterable[Path], but: set[str]) -> list[Section]:
    """Reports that are not of these experiments."""
    found = []
    for file in sorted(files):
        try:
            report = Report.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, ValidationError):
            continue
        if report.target not in but:
            other = (
                "tokenweight runtimes FILE.json" if report.target == "table-6" else "tokenweight evaluate --model MODEL"
            )
            found.append(Section(report=report, command=other))
    return found
