"""The page, from manifests: tables, notes, findings, the audit of the paper's own numbers, what was not run; its script
opens what is behind a number."""

import math
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from tokenweight.files import write_files
from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports import display
from tokenweight.reports.build import build_report
from tokenweight.reports.files import drawn
from tokenweight.reports.html.data import EMPTY, Records, Section, page_data
from tokenweight.reports.model import Report
from tokenweight.reports.statistics import holm
from tokenweight.reports.writing import holds_anything, styled
from tokenweight.webpage import page_environment, script_json

_RUNTIMES = "tokenweight runtimes FILE.json"  # makes Table 6
_DIVERGENCES = Path(__file__).parents[1] / "divergences.md"
# Control characters (but tab and line feed), what changes the direction of text, what has no width, lone surrogates.
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_LINK = re.compile(r'<a href="[^"]*">(.*?)</a>')  # the page leads nowhere outside of itself


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
            pictures = drawn(report, manifest, store_root) if figures else ()
            svg = {f"{report.heading}. {drawing.about}": files["svg"].decode() for _, drawing, files in pictures}
            recipes = {name: (show_config_command(manifest, name), held) for name, held in manifest.recipes.items()}
            sections.append(Section(report, manifest.full_command, recipes, svg))
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


def render(sections: Sequence[Section], store_root: Path, not_run: Mapping[str, str] | None = None) -> str:
    """One page of all sections, complete in itself; `not_run` is listed: commands by the headings of what they run."""
    records = Records(store_root)
    data = plain(page_data(sections, records))
    evaluations = sum(record.get("stage") == "evaluate" for record in records.known.values())
    alone = sections[0].report.heading if len(sections) == 1 else ""
    environment = page_environment(Path(__file__).parent, finalize=plain)
    environment.globals |= {"d": display, "audit_of": _audit_of}
    environment.filters["base64"] = lambda svg: b64encode(svg.encode()).decode()
    environment.filters["anchor"] = partial(re.sub, r"[^A-Za-z0-9-]", "-")  # of a target: its id on the page
    return environment.get_template("page.html.jinja").render(
        title=alone or "Token weighting: tables and figures from records",
        sections=sections,
        families=_families([section.report for section in sections]),
        not_run=not_run or {},
        divergences=_divergences(),
        evaluations=evaluations,
        others=len(records.known) - evaluations,
        empty=EMPTY,
        next_number=partial(next, count()),  # of a cell in the page's data
        data=script_json(data),
    )


def _families(reports: Sequence[Report]) -> str:
    """Which tests are corrected together, and what would change if all of the page were; "" where there is one table."""
    found = ((report.target, cell.difference) for report in reports for cell in report.cells)
    tested = [(target, one) for target, one in found if one and one.p is not None]
    tables = {target for target, _ in tested}
    if len(tables) < 2:
        return ""
    held = sum((one.p_corrected or 0.0) < display.SIGNIFICANT for _, one in tested)
    together = sum(p < display.SIGNIFICANT for p in holm({n: one.p for n, (_, one) in enumerate(tested)}).values())
    return display.words("families", len(tested), len(tables), held, together)


def _divergences() -> tuple[str, Markup]:
    """Heading and text of `reports/divergences.md`; its links become their words."""
    title, _, text = _DIVERGENCES.read_text(encoding="utf-8").partition("\n")
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = _LINK.sub(r"\1", html).replace("<h2>", "<h3>").replace("</h2>", "</h3>")
    html = html.replace("<table>", '<div class="scroll"><table class="words">').replace("</table>", "</table></div>")
    return title.removeprefix("# "), Markup(html)


def _audit_of(target: str) -> Any:
    """What the audit of the paper's own numbers finds about a target; None where that room is absent."""
    try:
        return import_module("tokenweight.reports.audit").findings_about(target)
    except ModuleNotFoundError:
        return None


def plain(value: Any) -> Any:
    """Text and JSON with characters that cannot be seen, or that reorder others, as [U+202E]; markup stays as it is."""
    match value:
        case str() if not isinstance(value, Markup):
            return _INVISIBLE.sub(lambda match: f"[U+{ord(match[0]):04X}]", value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {plain(str(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value
