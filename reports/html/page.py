"""The page: tables, notes, findings, the audit of the paper's own numbers; its script opens what is behind a number."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import count, groupby
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from tokenweight.reports import display
from tokenweight.reports.html.artifacts import Artifacts
from tokenweight.reports.html.data import EMPTY, Section, page_data
from tokenweight.reports.html.text import plain, shown
from tokenweight.reports.model import Report
from tokenweight.webpage import page_environment, script_json

_DIVERGENCES = Path(__file__).parents[1] / "divergences.md"
_LINK = re.compile(r'<a href="[^"]*">(.*?)</a>')  # the page leads nowhere outside of itself


def render(sections: Sequence[Section], store_root: Path, not_run: Mapping[str, str] | None = None) -> str:
    """One page of all sections, complete in itself; `not_run` is listed: commands by the headings of what they run."""
    artifacts = Artifacts(store_root)
    data = plain(page_data(sections, artifacts))
    evaluations = sum(record.get("stage") == "evaluate" for record in artifacts.records.values())
    alone = sections[0].report.heading if len(sections) == 1 else ""
    environment = page_environment(Path(__file__).parent, finalize=shown)
    environment.globals |= {"d": display, "audit_of": _audit_of, "choices": choices, "column_groups": _column_groups}
    environment.filters["base64"] = lambda svg: b64encode(svg.encode()).decode()
    return environment.get_template("page.html.jinja").render(
        title=alone or "Token weighting: tables and figures from records",
        sections=sections,
        not_run=not_run or {},
        divergences=_divergences(),
        evaluations=evaluations,
        others=len(artifacts.records) - evaluations,
        empty=EMPTY,
        next_number=partial(next, count()),  # of a cell in the page's data
        data=script_json(data),
    )


def choices(report: Report) -> dict[str, str]:
    """What the cells of this table hold beside their values, by the name of what shows it."""
    cells = report.cells
    return {
        **({"interval": "95 % interval"} if any(cell.ci_low is not None for cell in cells) else {}),
        **(
            {"difference": f"Difference to {report.baseline or 'the baseline'}"}
            if display.has_differences(report)
            else {}
        ),
        **({"paper": "The paper"} if any(display.paper_beside(cell) for cell in cells) else {}),
    }


def _column_groups(report: Report) -> list[tuple[str, int]]:
    """(name, columns) of the headings above the headings; [] where no column has one."""
    groups = [(name, len(list(members))) for name, members in groupby(report.columns, key=lambda column: column.group)]
    return groups if any(name for name, _ in groups) else []


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
