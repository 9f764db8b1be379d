"""From targets to one HTML page: what the store holds of each, and which were not run. Loads neither torch nor Prefect."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from tokenweight.recipes import Inputs, Loaded
from tokenweight.recipes.schema import Scale
from tokenweight.reports.build import build_report
from tokenweight.reports.html.page import render
from tokenweight.reports.html.section import NotRun, RecipeShown, Section
from tokenweight.reports.model import Report
from tokenweight.reports.writing import write_page
from tokenweight.store import Store
from tokenweight.tasks.collect import Planned, manifest, plan_target, ready_targets

ALL = "all"
_NOT_FROM_RECIPES = (
    NotRun("table-1", "Losses and weights of one sentence", "Table 1", "tokenweight inspect CHECKPOINT TEXT_FILE"),
    NotRun("table-6", "Run time of each weighting", "Table 6", "tokenweight runtimes FILE.json"),
)


def write_html(
    target: str, scale: Scale, inputs: Inputs, store: Store, file: Path, *, out_dir: Path, seeds: int | None = None
) -> None:
    """Write the page of a target, or of "all": each that the store holds something of, and the reports in `out_dir`.

    Raises UserError for an unknown target, for inputs that do not fit, and where the file cannot be written.
    """
    names = ready_targets() if target == ALL else [target]
    sections: list[Section] = []
    not_run: list[NotRun] = []
    for name in names:
        planned = plan_target(name, scale, inputs, store, seeds)
        section = _section(planned, inputs, store, seeds)
        if target != ALL or _holds_anything(section.report):
            sections.append(section)
        else:
            report = section.report
            not_run.append(NotRun(report.target, report.title, report.paper_place, section.command))
    if target == ALL:
        sections += _written(out_dir, set(names))
        shown = {section.report.target for section in sections}
        not_run += [item for item in _NOT_FROM_RECIPES if item.target not in shown]
    write_page(file, render(sections, store.root, not_run))


def reproduce_command(target: str, scale: Scale, inputs: Inputs, seeds: int | None) -> str:
    """The command that makes a target with these inputs, as one types it."""
    given = inputs.model_dump(exclude={"settings"}, exclude_none=True)
    words = ["tokenweight", "reproduce", target, "--scale", scale, *(("--seeds", str(seeds)) if seeds else ())]
    words += [word for name, value in given.items() for word in (f"--{name}", value)]
    return shlex.join([*words, *_set_options(inputs.settings)])


def _section(planned: Planned, inputs: Inputs, store: Store, seeds: int | None) -> Section:
    described = manifest(planned)
    return Section(
        report=build_report(described, store.root),
        command=reproduce_command(planned.target.name, planned.scale, inputs, seeds),
        recipes={
            loaded.recipe.name: RecipeShown(loaded, _show_config_command(loaded, planned.scale, inputs))
            for loaded in planned.recipes
        },
        divergences=(*planned.target.divergences, *described.divergences),
    )


def _show_config_command(loaded: Loaded, scale: Scale, inputs: Inputs) -> str:
    """With those settings of the user's that this recipe knows."""
    changed = [key for key, cited in loaded.settings.items() if cited.origin == "given by you"]
    known = [
        f"{key}={value}"
        for key, value in inputs.assignments().items()
        if any(f"{name}.".startswith(f"{key}.") for name in changed)
    ]
    return shlex.join(["tokenweight", "show-config", loaded.recipe.name, "--scale", scale, *_set_options(known)])


def _set_options(settings: Iterable[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _holds_anything(report: Report) -> bool:
    return any(cell.status not in ("missing", "not_in_paper") for row in report.rows for cell in row.cells)


def _written(out_dir: Path, but: set[str]) -> list[Section]:
    """Reports in the results directory that are not of these targets: Table 6, evaluations of other models."""
    found = []
    for file in sorted(out_dir.glob("*.json")):
        try:
            report = Report.model_validate_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, ValidationError):
            continue
        if report.target not in but:
            other = "tokenweight runtimes FILE.json" if report.target == "table-6" else "tokenweight evaluate --model MODEL"
            found.append(Section(report=report, command=other))
    return found
