"""The page: tables, notes, findings, the audit of the paper's own numbers; its script opens what is behind a number."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count, groupby
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from tokenweight.reports.display import (
    column_n_text,
    difference_legend,
    difference_text,
    finding_texts,
    has_differences,
    interval_legend,
    interval_text,
    is_significant,
    legend,
    less_paper_text,
    paper_beside,
    statistic_texts,
    value_text,
)
from tokenweight.reports.html.artifacts import Artifacts
from tokenweight.reports.html.data import EMPTY, NotRun, Section, page_data
from tokenweight.reports.html.text import plain, shown
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow
from tokenweight.webpage import page_environment, script_json

_DIVERGENCES = Path(__file__).parents[1] / "divergences.md"
_LINK = re.compile(r'<a href="[^"]*">(.*?)</a>')  # the page leads nowhere outside of itself


def render(sections: Sequence[Section], store_root: Path, not_run: Sequence[NotRun] = ()) -> str:
    """One page of all sections, whole in itself; `not_run` is listed with the commands that run it."""
    environment = page_environment(Path(__file__).parent, finalize=shown)
    artifacts = Artifacts(store_root)
    numbers = count()
    data = plain(page_data(sections, artifacts))
    return environment.get_template("page.html.jinja").render(
        title=_title(sections),
        sections=[
            {
                "report": section.report,
                "command": section.command,
                "anchor": re.sub(r"[^A-Za-z0-9-]", "-", section.report.target),
                "choices": choices(section.report),
                "groups": _column_groups(section.report),
                "sizes": [column_n_text(section.report, index) for index in range(len(section.report.columns))],
                "rows": _row_views(section.report, numbers),
                "about": about(section),
                "divergences": section.divergences,
                "legend": _legend(section.report),
                "statistics": statistic_texts(section.report),
                "findings": finding_texts(section.report),
                "audit": _audit_of(section.report.target),
                "figures": [b64encode(svg.encode()).decode() for svg in section.figures],
            }
            for section in sections
        ],
        not_run=not_run,
        divergences=_divergences(),
        summary=_summary(artifacts),
        data=script_json(data),
    )


def choices(report: Report) -> dict[str, str]:
    """What the cells of this table hold beside their values, by the name of what shows it."""
    cells = report.cells
    return {
        **({"interval": "95 % interval"} if any(cell.ci_low is not None for cell in cells) else {}),
        **({"difference": f"Difference to {report.baseline or 'the baseline'}"} if has_differences(report) else {}),
        **({"paper": "The paper"} if any(paper_beside(cell) for cell in cells) else {}),
    }


def about(section: Section) -> list[str]:
    """The report's notes about the whole table, without its divergences."""
    return [note.text for note in section.report.notes if note.mark is None and note.text not in section.divergences]


def _column_groups(report: Report) -> list[tuple[str, int]]:
    """(name, columns) of the headings above the headings; [] where no column has one."""
    groups = [(name, len(list(members))) for name, members in groupby(report.columns, key=lambda column: column.group)]
    return groups if any(name for name, _ in groups) else []


def _row_views(report: Report, numbers: Iterator[int]) -> list[tuple[ReportRow, list[dict[str, Any]]]]:
    """All rows with their cells; `numbers` continue through the tables of a page, in the order of `opening_cells`."""
    return [
        (row, [_view(cell, column, numbers) for cell, column in zip(row.cells, report.columns, strict=True)])
        for row in report.rows
    ]


def _view(cell: Cell, column: ReportColumn, numbers: Iterator[int]) -> dict[str, Any]:
    """One cell. `number`: of the cell in the page's data; None: it opens nothing. What is to be sorted as "" is last."""
    difference = cell.difference.value if cell.difference else None
    less_paper = "" if cell.less_paper is None else less_paper_text(cell, column)
    # A difference, its interval and p on a line each.
    lines = difference_text(cell, column).replace(" [", "\n[").replace(", p ", "\np ").replace(" (not", "\n(not")
    return {
        "number": None if cell.status in EMPTY else next(numbers),
        "sort": "" if cell.value is None else repr(cell.value),
        "value": value_text(cell, column),
        "interval": "" if cell.ci_low is None else interval_text(cell, column),
        "difference": "" if difference is None else f"Δ {lines}",
        "arrow": "" if not is_significant(cell) or not difference else "↑" if difference > 0 else "↓",
        "paper": " ".join(filter(None, (paper_beside(cell), less_paper))),
        "cell": cell,
    }


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
        return import_module("tokenweight.reports.audit.markdown").findings_about(target)
    except ModuleNotFoundError:
        return None


def _title(sections: Sequence[Section]) -> str:
    return sections[0].report.heading if len(sections) == 1 else "Token weighting: tables and figures from records"


def _legend(report: Report) -> list[str]:
    lines = [legend(report, "The paper's number"), f"Interval: {interval_legend()}"]
    if has_differences(report):
        lines += [
            difference_legend(report),
            "↑ ↓: the corrected p is below 0.05; the arrow is the difference's direction.",
        ]
    return lines


def _summary(artifacts: Artifacts) -> dict[str, object]:
    records = list(artifacts.records.values())
    evaluations = [record for record in records if record.get("stage") == "evaluate"]
    return {"evaluations": len(evaluations), "others": len(records) - len(evaluations)}
