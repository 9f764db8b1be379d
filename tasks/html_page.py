"""From targets to one HTML page: what the store holds of each, and which were not run. Loads neither torch nor Prefect."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from tokenweight.files import write_files
from tokenweight.pipeline import Store
from tokenweight.recipes import Inputs, Loaded
from tokenweight.recipes.inputs import last_part
from tokenweight.recipes.schema import Scale
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.style import render as figure_files
from tokenweight.reports.figures.style import style
from tokenweight.reports.figures.writing import figures_of
from tokenweight.reports.html.page import render
from tokenweight.reports.html.section import NotRun, RecipeShown, Section
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.model import Report
from tokenweight.reports.styles import styled
from tokenweight.reports.targets import TARGETS
from tokenweight.tasks.collect import ALL as PAPER
from tokenweight.tasks.collect import Planned, manifest, plan_targets, ready_targets

ALL = "all"  # every target, those that the paper does not have too
_TABLE_6 = NotRun("table-6", "Run time of each weighting", "Table 6", "tokenweight runtimes FILE.json")


def write_html(
    target: str,
    scale: Scale,
    inputs: Inputs,
    store: Store,
    file: Path,
    *,
    out_dir: Path,
    seeds: int | None = None,
    figures: bool = True,
) -> list[str]:
    """Write the page of a target, or of several ("all", "paper"): each that the store holds something of.

    "all" takes in the reports in `out_dir` that no recipes make: Table 6, evaluations of other models. Returns why
    targets are left out, a line each. Raises UserError for an unknown target, for inputs that do not fit, and where the
    file cannot be written.
    """
    name, others = target, list[str]()
    if target == ALL:
        name, others = PAPER, [each for each in ready_targets() if not TARGETS[each].paper_place]
    wanted, left_out = plan_targets(name, scale, inputs, store, seeds, others)
    sections: list[Section] = []
    not_run: list[NotRun] = []
    for planned in wanted:
        name, described = planned.target.name, manifest(planned)
        report = styled(build_report(described, store.root), "both")
        command = reproduce_command(name, scale, inputs, seeds)
        if target == name or _holds_anything(report):
            drawn = _figures(planned, report, described, store) if figures else ()
            sections.append(_section(planned, report, described, command, inputs, drawn))
        else:
            not_run.append(NotRun(name, report.title, report.paper_place, command))
    if target == ALL:
        sections += _written(out_dir, set(ready_targets()))
        if all(section.report.target != _TABLE_6.target for section in sections):
            not_run.append(_TABLE_6)
    write_files({file: render(sections, store.root, not_run)}, str(file), "another file")
    return left_out


def reproduce_command(target: str, scale: Scale, inputs: Inputs, seeds: int | None) -> str:
    """The command that makes a target with these inputs, as one types it where they lie: no absolute paths on a page."""
    given = inputs.model_dump(exclude={"settings"}, exclude_none=True)
    words = ["tokenweight", "reproduce", target, "--scale", scale, *(("--seeds", str(seeds)) if seeds else ())]
    words += [word for name, value in given.items() for word in (f"--{name}", last_part(value))]
    settings = (f"{key}={last_part(value)}" for key, value in inputs.assignments().items())
    return shlex.join([*words, *_set_options(settings)])


def _section(
    planned: Planned, report: Report, described: Manifest, command: str, inputs: Inputs, figures: tuple[str, ...]
) -> Section:
    return Section(
        report=report,
        command=command,
        recipes={
            loaded.recipe.name: RecipeShown(loaded, _show_config_command(loaded, planned.scale, inputs))
            for loaded in planned.recipes
        },
        divergences=(*planned.target.divergences, *described.divergences),
        figures=figures,
    )


def _figures(planned: Planned, report: Report, described: Manifest, store: Store) -> tuple[str, ...]:
    """The target's figures as SVG."""
    drawn = []
    for draw in figures_of(planned.target, described).values():
        with style():
            drawn.append(figure_files(draw(report, described, store.root).figure)["svg"].decode())
    return tuple(drawn)


def _show_config_command(loaded: Loaded, scale: Scale, inputs: Inputs) -> str:
    """With those settings of the user's that this recipe knows."""
    changed = [key for key, cited in loaded.settings.items() if cited.origin == "given by you"]
    known = [
        f"{key}={last_part(value)}"
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
            other = (
                "tokenweight runtimes FILE.json" if report.target == "table-6" else "tokenweight evaluate --model MODEL"
            )
            found.append(Section(report=report, command=other))
    return found
